"""A damaged run of a keyed topic: what is damaged is named by its queues, all else is as it was.

Finds: messages of other queues or indexes instead of damaged ones, queues that can't be read
though they are whole, and repairs that lose what proves itself.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.errors import CorruptionError, DataLossError
from kmq_storage import limits
from tests.damage.told import tell_losses

QUEUES, MESSAGES, BATCH_ROWS = 20, 30, 25


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose only topic has one run of small batches."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", BATCH_ROWS)
    with kmq.open(tmp_path / "store") as store:
        queues = store.keyed_queues("inbox")
        for number in range(MESSAGES):
            queues.put_batch(
                [_name(n) for n in range(QUEUES)], [_message(n, number) for n in range(QUEUES)]
            )
        assert store.seal().segments == 1
        store.checkpoint()
    return tmp_path / "store"


def _name(queue: int) -> str:
    return f"queue {queue:02}"


def _message(queue: int, number: int) -> bytes:
    return b"<%d in %d>" % (number, queue)


def _run(folder: Path) -> Path:
    (run,) = folder.glob("segments/*/0/*.arrow")
    return run


def _damage(file: Path, wanted: bytes) -> None:
    contents = file.read_bytes()
    at = contents.index(wanted)
    file.write_bytes(contents[:at] + b"?" + contents[at + 1 :])


def test_a_damaged_batch_is_named_by_queue_and_indexes_and_all_others_are_read(folder: Path):
    _damage(_run(folder), _message(7, 11))
    with kmq.open(folder, read_only=True) as store:
        queues = store.keyed_queues("inbox")
        with pytest.raises(
            CorruptionError, match=r"messages \d+ to \d+ of queue b'queue 07' in inbox"
        ) as raised:
            queues.get(_name(7), 0, MESSAGES)
        first, last = raised.value.context["first"], raised.value.context["last"]
        assert 0 <= first <= 11 <= last < MESSAGES
        assert raised.value.context["queue"] == b"queue 07"
        assert queues.get(_name(7), 0, first) == [_message(7, n) for n in range(first)]
        with pytest.raises(CorruptionError, match="of queue b'queue 07'") as many:
            queues.get_many([_name(n) for n in (3, 7)], 0, MESSAGES)
        assert many.value.context == raised.value.context
        hurt = set()
        for queue in range(QUEUES):
            assert queues.size(_name(queue)) == MESSAGES
            try:
                found = queues.get(_name(queue), 0, MESSAGES)
            except CorruptionError:
                hurt.add(queue)
                continue
            assert found == [_message(queue, n) for n in range(MESSAGES)]
        assert 7 in hurt
        assert len(hurt) <= 1 + BATCH_ROWS // MESSAGES + 1
        (damage,) = store.verify(deep=True).damage
        assert (damage.topic, damage.start, damage.end) == ("inbox", 0, QUEUES * MESSAGES)
        assert "b'queue 07'" in damage.reason


def test_a_damaged_directory_is_found_and_made_anew_by_a_repair(folder: Path):
    run = _run(folder)
    contents = run.read_bytes()
    at = contents.rindex(b"queue 19")
    run.write_bytes(contents[:at] + b"?" + contents[at + 1 :])
    with kmq.open(folder) as store:
        named = "in the directory of the queues from b'queue 00' on"
        with pytest.raises(CorruptionError, match=named):
            store.keyed_queues("inbox").get(_name(3), 0, 1)
        (damage,) = store.verify(deep=True).damage
        assert named in damage.reason
        assert store.repair().ok
        assert store.keyed_queues("inbox").size(_name(19)) == MESSAGES
    _expect_all(folder)


def test_a_repair_saves_what_proves_itself_and_the_rest_is_told_as_lost(folder: Path):
    _damage(_run(folder), _message(7, 11))
    with kmq.open(folder) as store:
        assert not store.repair().ok
        assert store.repair(drop_damaged=True).ok
        queues = store.keyed_queues("inbox")
        hurt = [name for name in queues.names() if queues.size(name) < MESSAGES]
        tell_losses(queues, *map(str, hurt))
        stored = {name: queues.get(name, 0, 999) for name in queues.names()}
        lost = QUEUES * MESSAGES - sum(map(len, stored.values()))
        assert 1 <= lost <= BATCH_ROWS
        for queue in range(QUEUES):
            wanted = [_message(queue, n) for n in range(MESSAGES)]
            kept = stored[_name(queue)]
            assert [each for each in wanted if each in kept] == kept
        with pytest.raises(DataLossError):
            store.read("inbox").read_all()
        assert queues.put(_name(0), b"more").result() == len(stored[_name(0)])
        assert store.verify(deep=True).ok


def test_a_repair_names_the_messages_that_it_gives_up_and_lists_no_thousands_of_offsets(
    folder: Path,
):
    for queue in (3, 7):
        _damage(_run(folder), _message(queue, 11))
    with kmq.open(folder) as store:
        (damage,) = store.verify(deep=True).damage
        spans = re.findall(r"from b'queue (\d\d)', index (\d+) to b'queue (\d\d)',", damage.reason)
        assert len(spans) == 2
        for queue, (first, _, last) in zip((3, 7), spans, strict=True):
            assert int(first) <= queue <= int(last)
        notes = store.repair(drop_damaged=True).notes
        assert f"{damage.file}: cut out: {damage.reason}" in notes
        lost = f"inbox-0: {2 * BATCH_ROWS} of the offsets "
        assert {note[: len(lost)] for note in notes if note.startswith("inbox-0")} == {lost}
        assert [note[: len(lost)] for note in store.verify().notes] == [lost]


def test_verify_names_the_first_and_the_last_message_of_a_damaged_batch(folder: Path):
    before = _run(folder)
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        for number in range(MESSAGES, 2 * MESSAGES):
            queues.put_batch(*zip(*((_name(n), _message(n, number)) for n in (6, 7)), strict=True))
        queues.flush()
        store.seal()
    (later,) = {*folder.glob("segments/*/0/*.arrow")} - {before}
    _damage(later, _message(7, MESSAGES + 11))
    (damage,) = kmq.open(folder, read_only=True).verify(deep=True).damage
    first, last = re.findall(r"b'(queue \d\d)', index (\d+)", damage.reason)
    assert ("queue 06", MESSAGES) <= (first[0], int(first[1])) <= ("queue 07", MESSAGES + 11)
    assert ("queue 07", MESSAGES + 11) <= (last[0], int(last[1])) < ("queue 07", 2 * MESSAGES)
    with kmq.open(folder, read_only=True) as store:
        for name, index in ((first[0], int(first[1])), (last[0], int(last[1]))):
            with pytest.raises(CorruptionError):
                store.keyed_queues("inbox").get(name, index, 1)


def test_damage_of_a_run_that_only_a_checkpoint_names_is_told_and_stops_no_repair(folder: Path):
    merged = _run(folder)
    with kmq.open(folder, maintenance=False) as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch([_name(7)] * 3, [b"1", b"2", b"3"])
        assert store.compact("inbox").before == 2
        _damage(merged, _message(7, 11))
        (damage,) = store.verify(deep=True).damage
        assert damage.file.endswith(merged.name)
        assert "queue" not in damage.reason
        store.repair(drop_damaged=True)
        assert store.verify(deep=True).ok
        assert queues.size(_name(7)) == MESSAGES + 3
        assert queues.get(_name(7), 11, 1) == [_message(7, 11)]


def test_a_manifest_that_is_made_from_segments_has_the_queues(folder: Path):
    for file in [*folder.glob("checkpoints/*"), *folder.glob("log/*")]:
        file.unlink()
    with kmq.open(folder) as store:
        store.repair(drop_damaged=True)
    _expect_all(folder, in_doubt=True)


def _expect_all(folder: Path, *, in_doubt: bool = False) -> None:
    with kmq.open(folder) as store:
        queues = store.keyed_queues("inbox")
        assert queues.names() == [_name(queue) for queue in range(QUEUES)]
        for queue in range(QUEUES):
            if in_doubt:  # nobody knows what stood behind the run
                tell_losses(queues, _name(queue))
            assert queues.get(_name(queue), 0, 999) == [_message(queue, n) for n in range(MESSAGES)]
        assert store.verify(deep=True).ok
