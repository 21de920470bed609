"""Manifests that are made without any checkpoint: no end goes back, and no loss is silent.

Finds: offsets that are given out twice since a partition's end is taken for where its last
segment ends, gaps that nobody is told of any more, and topics of one name that hide each other.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.cli.command_line import main
from kmq_storage import limits
from kmq_storage.environment import SYSTEM
from kmq_storage.format.checksum import checksum
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.segment import decode_footer
from kmq_storage.integrity.repairs.rebuild import rebuild
from kmq_storage.log.disk.behind import go_on_behind
from kmq_storage.log.state.lost_ranges import Unnamed
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket_files import BucketFiles
from tests.damage.bucket import commits_of, store_in
from tests.damage.store import read_partition
from tests.damage.test_repair import frame_with, harmed
from tests.support.damage import flip
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import make_topic, send


def _lose_checkpoints(folder: Path) -> None:
    """Nothing but segments and the log is left, and the store made anew from these."""
    for name in ("checkpoints", "pages"):
        shutil.rmtree(folder / name)
    assert main(["--store", str(folder), "repair", "--drop-damaged"]) == 0


def _send(store: kmq.Store, *values: bytes, topic: str = "t", partition: int = 0) -> int:
    """The offset of the last one."""
    with store.producer() as producer:
        return [producer.send(topic, v, partition=partition).result(10) for v in values][-1].offset


def _leave_log_behind(store: kmq.Store) -> None:
    """The log goes on in a new file, and the old ones are gone."""
    go_on_behind(store.log.files, store.log.identity, store.log.environment, Unnamed())
    store.log.drop_before(store.log.reload().lsn + 1)


def test_an_end_that_a_gap_raised_does_not_go_back_with_the_commit_of_that_gap(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t", partitions=2)
        _send(store, b"0", b"1")
        store.seal()
        _send(store, b"2")
        last = _send(store, b"lost")
    harmed(tmp_path, frame_with(b"lost")(tmp_path))
    with kmq.open(tmp_path, maintenance=False) as store:
        assert store.repair(drop_damaged=True).ok
        _send(store, b"in the log", partition=1)
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert _send(store, b"new") > last
        assert store.read("t", partitions=[0], end={0: 3}).read_all().num_rows == 3
        with pytest.raises(kmq.DataLossError):
            store.read("t", partitions=[0]).read_all()
        assert store.read("t", partitions=[1]).read_all()["value"].to_pylist() == [b"in the log"]
        assert store.verify(deep=True).ok


def test_the_end_of_a_partition_of_which_all_was_trimmed_does_not_go_back(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t", partitions=2)
        _send(store, b"kept", partition=1)
        last = _send(store, b"0", b"1")
        store.seal()
        store.trim("t", {0: 2})
        store.checkpoint()
        store.collect(grace=0)
        _leave_log_behind(store)
        store.alter_topic("t", retention=1e6)
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert store.read("t", partitions=[0]).read_all().num_rows == 0
        assert _send(store, b"new") > last
        assert store.read("t", partitions=[0]).read_all()["value"].to_pylist() == [b"new"]
        assert store.verify(deep=True).ok


def test_records_of_a_staged_file_that_nothing_names_any_more_count_for_the_end(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        make_topic(store.log)
        send(store.log, b"sealed")
        store.seal()
        last = send(store.log, *[b"x"] * 3_000_000, staged=True).entries[0]
        assert isinstance(last, RecordsEntry)
        _leave_log_behind(store)
        send(store.log, b"in the log", partition=1)
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert _send(store, b"new") >= last.base_offset + last.rows


def test_a_segment_whose_footer_is_damaged_too_tells_by_its_name_how_far_a_partition_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "SMALL_COMMIT_BYTES_MAX", 8)  # a record
    with kmq.open(tmp_path, maintenance=False) as store:
        make_topic(store.log)
        for count in (1, 100, 1):
            send(store.log, *[b"x"] * count)
            store.seal()
        _leave_log_behind(store)
    for segment in sorted((tmp_path / "segments").rglob("*.arrow"))[1:]:
        flip(segment, segment.stat().st_size - 50)
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert _send(store, b"new") > 101


def test_a_topic_that_was_deleted_hides_no_later_one_of_its_name(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        _send(store, b"of the first")
        store.seal()
        _leave_log_behind(store)
        _send(store, b"of the first")
        store.delete_topic("t")
        store.create_topic("t")
        _send(store, b"of the second")
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert [topic.name for topic in store.topics()] == ["t"]
        assert store.read("t").read_all()["value"].to_pylist() == [b"of the second"]
        assert store.verify(deep=True).ok


@pytest.mark.parametrize("key", [None, b"one", b"%d"])
@pytest.mark.parametrize("merged", [False, True])
def test_a_gap_inside_of_a_segment_is_told_still_where_every_checkpoint_is_lost(
    tmp_path: Path, key: bytes | None, merged: bool
):
    with kmq.open(tmp_path, maintenance=False) as store:
        _fill_one_segment(store, key)
    (segment,) = (tmp_path / "segments").rglob("*.arrow")
    flip(segment, segment.stat().st_size // 2)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert store.repair(drop_damaged=True).ok
        with pytest.raises(kmq.DataLossError) as lost:
            store.read("t").read_all()
        if merged:
            _send(store, b"more")
            store.compact("t")
            store.seal()
            store.compact("t")
        store.collect(grace=0)
        _leave_log_behind(store)
        _send(store, b"in the log")
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        with pytest.raises(kmq.DataLossError) as again:
            store.read("t").read_all()
        span = ("start", "end")
        assert [again.value.context[at] for at in span] == [lost.value.context[at] for at in span]
        assert store.read("t", start={0: again.value.context["end"]}).read_all().num_rows > 1
        assert store.verify(deep=True).ok


def _fill_one_segment(store: kmq.Store, key: bytes | None) -> None:
    """Batches of a few records, with one key, with a key each, or with none."""
    store.create_topic("t")
    with store.producer() as producer, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BATCH_ROWS_MAX", 10)
        for number in range(100):
            own = key % number if key and b"%" in key else key
            producer.send("t", b"value %d" % number, own)
        producer.flush()
        assert store.seal().segments == 1


def test_what_compaction_left_out_is_no_loss_where_every_checkpoint_is_lost(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t", cleanup="compact")
        with store.producer() as producer:
            for number in range(100):
                producer.send("t", b"value %d" % number, b"%d" % (number % 7))
            producer.send("t", b"without a key").result(10)
        store.compact("t")
        kept = store.read("t").read_all()
        store.checkpoint()
        store.collect(grace=0)
        _leave_log_behind(store)
        _send(store, b"in the log")
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert kept.num_rows == 8
        assert store.read("t", end={0: 101}).read_all().equals(kept)


def _lose_the_middle(folder: Path, *, merged: bool) -> dict[tuple[str, int], list[object]]:
    """An older checkpoint is left, and a log that begins long behind it; what there was."""
    with kmq.open(folder, maintenance=False) as store:
        store.create_topic("t", partitions=2)
        _send(store, b"0", b"1")
        store.seal()
        store.checkpoint()
        older = {path: path.read_bytes() for path in folder.glob("[cp]*/*") if path.is_file()}
        _send(store, b"2", b"3")
        _send(store, b"4", partition=1)
        store.seal()
        _send(store, b"5")
        store.seal()
        if merged:
            store.compact("t")
            store.checkpoint()
            store.collect(grace=0)
        _leave_log_behind(store)
        _send(store, b"in the log")
        expected = {("t", number): read_partition(store, "t", number) for number in range(2)}
    for path in [*folder.glob("checkpoints/*"), *folder.glob("pages/*")]:
        path.unlink()
    for path, contents in older.items():
        path.write_bytes(contents)
    return expected


@pytest.mark.parametrize("merged", [False, True])
def test_between_an_older_checkpoint_and_the_log_segments_tell_where_records_stand(
    tmp_path: Path, merged: bool
):
    expected = _lose_the_middle(tmp_path, merged=merged)
    assert main(["--store", str(tmp_path), "repair", "--drop-damaged"]) == 0
    with kmq.open(tmp_path, maintenance=False) as store:
        assert read_partition(store, "t", 0) == expected["t", 0]
        assert read_partition(store, "t", 1, end=1) == expected["t", 1]
        assert store.describe_topic("t").rows == 7
        assert _send(store, b"new", partition=1) > 0
        assert store.verify(deep=True).ok


def _sealed(store: kmq.Store) -> int:
    """The last offset of what no log is needed for."""
    store.create_topic("t", partitions=2)
    last = _send(store, b"0", b"1")
    store.seal()
    store.checkpoint()
    return last


def _go_on(knows: kmq.Store, other: kmq.Store, last: int) -> None:
    """Two send in turns, of which one knows what the other does not."""
    sent = {}
    for number, store in enumerate([knows, knows, other, knows, other]):
        for partition in range(2):
            value = b"new %d %d" % (number, partition)
            offset = _send(store, value, partition=partition)
            assert (partition, offset) not in sent
            sent[partition, offset] = value
            assert partition or offset > last
    for (partition, offset), value in sent.items():
        bounds = {"start": {partition: offset}, "end": {partition: offset + 1}}
        found = other.read("t", partitions=[partition], **bounds).read_all()["value"].to_pylist()
        assert found == [value]


def test_a_segment_whose_footer_is_damaged_keeps_no_other_one_from_coming_back(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        for name in ("t", "hurt"):
            store.create_topic(name)
            _send(store, b"0", topic=name)
        store.seal()
        topic = store.describe_topic("hurt").topic_id.hex
        _leave_log_behind(store)
    (segment,) = (tmp_path / "segments" / topic).rglob("*.arrow")
    text = segment.read_bytes().rindex(segment.stem.rpartition("-")[2].encode())
    flip(segment, text + 60, 64)  # a digit of what it says of its batch is none
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert store.read("t", end={0: 1}).read_all()["value"].to_pylist() == [b"0"]


def test_a_queue_can_be_made_again_where_only_segments_of_its_own_log_are_left(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_queue("q")
        with store.producer() as producer:
            producer.send_to_queue("q", b"before").result(10)
        store.seal()
        _leave_log_behind(store)
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        (topic,) = store.topics()
        assert read_partition(store, topic.name, 0, end=1) == [(0, b"before")]
        store.create_queue("q")
        with store.producer() as producer:
            producer.send_to_queue("q", b"behind").result(10)
        with store.queue("q") as queue:
            assert [message.value for message in queue.receive(9, timeout=1)] == [b"behind"]
        assert store.repair(drop_damaged=True).ok


def _said_version(segment: Path) -> int:
    """Where the footer of a segment says the version of its format."""
    (at,) = [at for at, byte in enumerate(segment.read_bytes()) if _says_version(segment, at, byte)]
    return at


def _says_version(segment: Path, at: int, byte: int) -> bool:
    if byte != ord("1"):
        return False
    body = segment.read_bytes()
    changed = body[:at] + b"!" + body[at + 1 :]
    with suppress(pa.ArrowInvalid, UnicodeDecodeError):
        return bool(pa.ipc.open_file(changed).schema.metadata[b"kmq.format"] == b"!")
    return False


@pytest.mark.parametrize("version", ["!", "3"])
def test_a_segment_whose_format_version_is_damaged_comes_back_and_is_written_again(
    tmp_path: Path, version: str
):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        _send(store, b"0")
        store.seal()
        _leave_log_behind(store)
    (segment,) = (tmp_path / "segments").rglob("*.arrow")
    flip(segment, _said_version(segment), ord("1") ^ ord(version))
    _lose_checkpoints(tmp_path)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert store.verify(deep=True).ok
        assert store.read("t", end={0: 1}).read_all()["value"].to_pylist() == [b"0"]


@pytest.mark.parametrize("version", ["!", "3"])
def test_a_damaged_format_version_of_a_segment_that_nobody_needs_ends_no_verify(
    tmp_path: Path, version: str
):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        for number in range(2):
            _send(store, b"%d" % number)
            store.seal()
        waiting = min((tmp_path / "segments").rglob("*.arrow"))
        store.compact("t")
        _leave_log_behind(store)
        flip(waiting, _said_version(waiting), ord("1") ^ ord(version))
        assert "waits to be collected" in "".join(store.verify(deep=True).notes)


def test_a_damaged_footer_whose_checksum_was_taken_since_is_damage_and_nothing_else(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as store:
        store.create_topic("t")
        _send(store, b"0")
        store.seal()
        (row,) = store.log.refresh().topic("t").index(0).rows(0, 1)
    (segment,) = (tmp_path / "segments").rglob("*.arrow")
    footer = segment.read_bytes()[row.position :]
    for at, bit in product(range(len(footer)), (1, 64)):
        damaged = bytearray(footer)
        damaged[at] ^= bit
        with suppress(kmq.CorruptionError):
            expected = checksum(damaged)
            decode_footer(pa.py_buffer(damaged), "f", row.file, columns=9, expected=expected)


def test_who_knows_what_a_manifest_made_anew_does_not_goes_on_with_it_on_a_disk(tmp_path: Path):
    with kmq.open(tmp_path, maintenance=False) as knows:
        last = _sealed(knows)
        _leave_log_behind(knows)
        knows.alter_topic("t", retention=1e6)
        _lose_checkpoints(tmp_path)
        with kmq.open(tmp_path, maintenance=False) as other:
            _go_on(knows, other, last)
    with kmq.open(tmp_path, maintenance=False) as store:
        assert store.verify(deep=True).ok


def test_who_knows_what_a_manifest_made_anew_does_not_goes_on_with_it_in_a_bucket():
    bucket = MemoryBucket("memory-bucket://knows")
    with store_in(bucket) as knows:
        last = _sealed(knows)
        knows.log.drop_before(knows.log.refresh().lsn + 1)
        knows.alter_topic("t", retention=1e6)
        lost = [each for each in bucket.objects if each.startswith(("checkp", "pages"))]
        for name in [*lost, *commits_of(bucket)[:-1]]:
            bucket.delete(name)
        files = BucketFiles(bucket)
        rebuild(files, open_identity(files, SYSTEM, create=False), SYSTEM)
        with store_in(bucket) as other:
            _go_on(knows, other, last)
    with store_in(bucket) as store:
        store.seal()
        store.checkpoint()
        assert store.verify(deep=True).ok
