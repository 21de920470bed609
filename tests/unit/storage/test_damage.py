"""Damage to what was acknowledged is found, named and confined; neighbours stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.copying.topics import copy_topics
from kmq_storage.errors import CorruptionError, KmqError
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.log.files.hint import Hint
from kmq_storage.log.files.journal import StoredFrame
from kmq_storage.names import queue_log
from tests.support.damage import flip
from tests.support.storage import make_topic, open_folder, send, values_of

LOG = "log/00000000000000000001.log"


def _store(folder: Path) -> list[StoredFrame]:
    """Commits: 1 topic, then per partition 0, 1 in turn; the third of partition 0 is staged."""
    log = open_folder(folder)
    make_topic(log)
    for number in range(3):
        send(log, b"a%d" % number, b"b%d" % number, partition=0, staged=number == 2)
        send(log, b"c%d" % number, partition=1)
    return list(log._past.frames(1, 7))


def _records(frame: StoredFrame) -> RecordsEntry:
    (entry,) = frame.entries()
    assert isinstance(entry, RecordsEntry)
    return entry


def test_a_damaged_batch_names_its_place_and_leaves_the_others_readable(tmp_path: Path):
    frames = _store(tmp_path)
    entry = _records(frames[3])  # partition 0, offsets 2 and 3
    for at in range(0, entry.length, 7):
        position = frames[3].position + entry.position + at
        flip(tmp_path / LOG, position)
        log = open_folder(tmp_path)
        with pytest.raises(CorruptionError) as caught:
            values_of(log)
        assert {k: caught.value.context[k] for k in ("file", "topic", "partition")} == {
            "file": LOG,
            "topic": "t",
            "partition": 0,
        }
        assert (caught.value.context["start"], caught.value.context["end"]) == (2, 4)
        assert values_of(log, 1) == [b"c0", b"c1", b"c2"]
        flip(tmp_path / LOG, position)
    assert len(values_of(open_folder(tmp_path))) == 6


def _sampled(frame: StoredFrame) -> range:
    return range(frame.position, frame.position + 128 + frame.header.directory_length, 5)


@pytest.mark.parametrize("drop_hint", [False, True])
def test_a_damaged_header_or_directory_is_a_hole_with_known_offsets(
    tmp_path: Path, drop_hint: bool
):
    frames = _store(tmp_path)
    for position in _sampled(frames[3]):
        flip(tmp_path / LOG, position)
        if drop_hint:
            (tmp_path / "log" / "hint").unlink()
        log = open_folder(tmp_path)
        topic = log.refresh().topic("t")
        assert values_of(log, 1) == [b"c0", b"c1", b"c2"]
        assert [chunk.base_offset for chunk in topic.places(0, 0, 2)] == [0]
        assert [chunk.base_offset for chunk in topic.places(0, 4, 6)] == [4]
        with pytest.raises(CorruptionError, match="t-0: offsets 2 to 3 can't be read") as caught:
            topic.places(0, 0, 6)
        assert caught.value.context["file"] == LOG
        flip(tmp_path / LOG, position)
        log.close()
    assert len(values_of(open_folder(tmp_path))) == 6


def test_after_the_last_record_of_a_partition_a_damaged_commit_leaves_its_end_in_doubt(
    tmp_path: Path,
):
    frames = _store(tmp_path)
    flip(tmp_path / LOG, frames[5].position + 10)  # the last one of partition 0
    log = open_folder(tmp_path)
    state = log.refresh()
    state.check_end("t", 1)
    with pytest.raises(CorruptionError, match="t-0: what follows offset 4 can't be read"):
        state.check_end("t", 0)
    with pytest.raises(CorruptionError):  # offset 4 was given out before
        send(log, b"x", partition=0)
    send(log, b"c3", partition=1)
    assert values_of(log, 1) == [b"c0", b"c1", b"c2", b"c3"]


def test_a_commit_that_is_missing_in_the_middle_is_damage(tmp_path: Path):
    frames = _store(tmp_path)
    content = bytearray((tmp_path / LOG).read_bytes())
    begin, end = frames[3].position, frames[3].position + frames[3].header.length
    content[begin:end] = bytes(end - begin)
    (tmp_path / LOG).write_bytes(bytes(content))
    log = open_folder(tmp_path)
    with pytest.raises(CorruptionError, match="frames are missing"):
        values_of(log)
    assert values_of(log, 1) == [b"c0", b"c1", b"c2"]


def test_damage_is_passed_over_while_somebody_changes_the_log_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frames = _store(tmp_path)
    monkeypatch.setattr(Hint, "rolls", 1)  # they are listed anew for each look
    (file,) = (tmp_path / "log").glob("*.log")
    with file.open("r+b") as log:
        log.seek(frames[2].position + 8)
        log.write(b"\xff\xff")
    state = open_folder(tmp_path).refresh()
    assert [(each.first_lsn, each.last_lsn) for each in state.damage] == [(3, 3)]
    assert state.lsn == frames[-1].header.lsn


def test_a_damaged_last_commit_stops_readers_at_its_place_and_writers_at_all(tmp_path: Path):
    frames = _store(tmp_path)
    for position in _sampled(frames[6]):
        flip(tmp_path / LOG, position)
        log = open_folder(tmp_path)
        assert values_of(log, 1) == [b"c0", b"c1"]
        for partition in (0, 1):
            with pytest.raises(CorruptionError, match="commits 7 to 7 in log/"):
                log.refresh().check_end("t", partition)
        with pytest.raises(CorruptionError, match="nothing is written behind it"):
            send(log, b"x")
        flip(tmp_path / LOG, position)


def test_a_topic_whose_making_is_damaged_is_not_said_to_be_missing(tmp_path: Path):
    frames = _store(tmp_path)
    flip(tmp_path / LOG, frames[0].position + 130)
    state = open_folder(tmp_path).refresh()
    with pytest.raises(CorruptionError, match="may have made it"):
        state.topic("t")


@pytest.mark.parametrize("is_last", [False, True])
def test_a_queue_or_group_whose_making_is_damaged_is_not_said_to_be_missing(
    tmp_path: Path, is_last: bool
):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        made = [len(list(store.commits()))]
        store.create_queue("mails")
        store.set_group_offsets("readers", {"t": {0: 0}})
        made.append(len(list(store.commits())))
        if not is_last:
            store.create_topic("u")
    for frame in open_folder(tmp_path)._past.frames(made[0] + 1, made[1]):
        flip(tmp_path / LOG, frame.position + 130)
    with kmq.open(tmp_path, read_only=True) as store:
        for ask in (
            lambda: store.queue("mails"),
            lambda: store.describe_group("readers"),
            lambda: store.log.state.topic(queue_log("mails")),
        ):
            with pytest.raises(CorruptionError, match=r"^(Queue|Group)\[\w+\] is not known, but"):
                ask()


def test_a_missing_first_log_file_is_damage(tmp_path: Path):
    _store(tmp_path)
    (tmp_path / LOG).unlink()
    log = open_folder(tmp_path)
    assert log.refresh().broken is not None
    with pytest.raises(CorruptionError):
        send(log, b"x")


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "empty"])
def test_a_damaged_staged_file_is_named_and_the_rest_stays_readable(tmp_path: Path, harm: str):
    frames = _store(tmp_path)
    entry = _records(frames[5])
    (file,) = (tmp_path / "staged").iterdir()
    if harm == "flip":
        flip(file, entry.position + entry.length // 2)
    elif harm == "remove":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: entry.position + 10] if harm == "cut" else b"")
    log = open_folder(tmp_path)
    with pytest.raises(CorruptionError) as caught:
        values_of(log)
    context = caught.value.context
    assert context["file"] == f"staged/{file.name}"
    assert (context["topic"], context["partition"]) == ("t", 0)
    assert (context["start"], context["end"]) == (4, 6)
    assert values_of(log, 1) == [b"c0", b"c1", b"c2"]


def test_no_flip_of_any_byte_of_the_log_gives_wrong_data_or_a_crash(tmp_path: Path):
    frames = _store(tmp_path)
    end = frames[-1].position + frames[-1].header.length
    right = {0: [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"], 1: [b"c0", b"c1", b"c2"]}
    for position in range(0, end, 11):
        flip(tmp_path / LOG, position)
        log = open_folder(tmp_path)
        for partition, expected in right.items():
            try:
                found = values_of(log, partition)
                log.refresh().check_end("t", partition)
                assert found == expected, position
            except CorruptionError:
                pass
        flip(tmp_path / LOG, position)


@pytest.mark.parametrize("position", range(0, 100, 9))
def test_a_flip_in_kmq_json_opens_no_other_store(tmp_path: Path, position: int):
    _store(tmp_path)
    flip(tmp_path / "kmq.json", position, 1)
    with pytest.raises(KmqError) as caught:
        values_of(open_folder(tmp_path))
    assert isinstance(caught.value, CorruptionError)
    assert "put the file back from a copy of the store" in str(caught.value)


def test_the_commits_of_a_damaged_log_end_with_an_error_that_names_the_place(tmp_path: Path):
    frames = _store(tmp_path)
    flip(tmp_path / LOG, frames[3].position + 20)
    commits = open_folder(tmp_path).commits(1)
    assert [next(commits).lsn for _ in range(3)] == [1, 2, 3]
    with pytest.raises(CorruptionError, match="commit 4 in log/") as caught:
        next(commits)
    assert caught.value.context == {"file": LOG, "lsn": 4}


def test_the_commits_of_a_log_with_a_damaged_end_end_with_an_error_too(tmp_path: Path):
    frames = _store(tmp_path)
    flip(tmp_path / LOG, frames[6].position + 20)
    commits = open_folder(tmp_path).commits(None)
    assert [next(commits).lsn for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    with pytest.raises(CorruptionError, match="commit 7 in log/"):
        next(commits)


@pytest.mark.parametrize("number", [0, 6])
def test_nobody_goes_on_from_before_a_damaged_end_as_if_nothing_was_behind_it(
    tmp_path: Path, number: int
):
    frames = _store(tmp_path / "store")
    flip(tmp_path / "store" / LOG, frames[number].position + 8)
    for each in frames[number + 1 :]:
        flip(tmp_path / "store" / LOG, each.position + 8)
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        assert f"commits {number + 1} to " in store.stats().damage
        with pytest.raises(CorruptionError, match="damaged"):
            store.checkpoint()
        with kmq.open(tmp_path / "copy") as copied, pytest.raises(CorruptionError, match="damaged"):
            copy_topics(store.log, copied.log)
    with pytest.raises(CorruptionError, match="damaged"):
        kmq.clone(tmp_path / "store", tmp_path / "clone")
