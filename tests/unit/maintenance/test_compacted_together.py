"""Compacting many partitions of few records: they are written, synced and named together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kmq_spark.client.store import Store
from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import Row
from kmq_storage.maintenance.compact import compact_keys
from kmq_storage.maintenance.damaged import Damaged
from kmq_storage.maintenance.manner import PLAIN, Manner
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.trim import plan_trim, trim
from tests.support.engine import Sent, files_below, open_engine, rows_of, send_rows
from tests.support.failing_disk import FailingDisk

PARTITIONS = 9


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    return FailingDisk(tmp_path / "store")


@pytest.fixture
def store(disk: FailingDisk) -> Store:
    store = open_engine(disk, file_bytes=64 * 1024)
    store.create_topic("t", partitions=PARTITIONS, cleanup="compact")
    for number in range(PARTITIONS):
        send_rows(store.log, "t", _rows(number), partition=number)
    seal(store.log, plan_seal(store.log.refresh()))
    return store


def _rows(number: int) -> list[Sent]:
    """Records of one key in even partitions, of different ones in odd ones."""
    return [Sent(b"k%d" % (at * (number % 2)), b"%d-%d" % (number, at)) for at in range(3)]


def _kept(number: int) -> list[Sent]:
    return _rows(number)[0 if number % 2 else 2 :]


def _check_compacted(store: Store, numbers: range = range(PARTITIONS)) -> None:
    for number in numbers:
        assert list(rows_of(store, "t", number).values()) == _kept(number)
        assert all(row.compacted for row in _segments(store, number))


def _segments(store: Store, number: int) -> list[Row]:
    return list(store.log.refresh().topic("t").index(number).rows(0, 9))


def _compacting(store: Store, manner: Manner = PLAIN) -> Callable[[], tuple[int, int, int]]:
    """Plans a compaction now; returns what carries it out and tells what was done."""
    topic, lsn = store.log.snapshot()[0].topic("t"), store.log.refresh().lsn

    def done() -> tuple[int, int, int]:
        report = compact_keys(store.log, topic, lsn, manner=manner)
        return report.after, report.dropped, report.conflicts

    return done


def test_small_partitions_are_compacted_by_one_commit_and_their_files_synced_together(
    store: Store, disk: FailingDisk
):
    before, files = store.log.refresh().lsn, len(disk.calls)
    assert _compacting(store)() == (5, 10, 0)
    assert disk.calls[files:].count("stage synced") == 1
    assert store.log.refresh().lsn == before + 1
    _check_compacted(store)
    assert store.verify(deep=True).damage == []


def test_partitions_of_which_nothing_goes_are_marked_by_one_commit(store: Store):
    _compacting(store)()
    send_rows(store.log, "t", [Sent(b"new", b"v")], partition=1)
    send_rows(store.log, "t", [Sent(b"new", b"v")], partition=3)
    seal(store.log, plan_seal(store.log.refresh()))
    before = store.log.refresh().lsn
    assert _compacting(store)() == (2, 0, 0)
    assert store.log.refresh().lsn == before + 1


def test_a_partition_that_changed_meanwhile_keeps_none_of_the_others_from_being_compacted(
    store: Store, disk: FailingDisk
):
    compact = _compacting(store)
    state = store.log.refresh()
    trim(store.log, plan_trim(state.topic("t"), {4: 1, 5: 1}), state.lsn)
    assert compact() == (4, 8, 1)
    _check_compacted(store, range(4))
    _check_compacted(store, range(6, PARTITIONS))
    assert len(files_below(disk, paths.SEGMENT_FOLDER)) == PARTITIONS + 4
    assert [row.compacted for row in _segments(store, 4) + _segments(store, 5)] == [False] * 2


def test_damage_in_one_partition_keeps_none_of_the_others_from_being_compacted(
    store: Store, disk: FailingDisk
):
    (row,) = _segments(store, 6)
    file = disk.root / row.path((store.log.refresh().topic("t").id, 6))
    whole = file.read_bytes()
    with file.open("r+b") as segment:  # in place, as it is mapped
        segment.write(bytes(len(whole)))
    damaged = Damaged()
    assert _compacting(store, Manner(apart=damaged.apart))() == (4, 8, 0)
    _check_compacted(store, range(6))
    with pytest.raises(CorruptionError, match="t-6"):
        damaged.tell()


def test_partitions_that_span_many_offsets_are_compacted_one_by_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "WRITE_BYTES", 1)
    before = store.log.refresh().lsn
    assert _compacting(store)() == (5, 10, 0)
    assert store.log.refresh().lsn == before + PARTITIONS
    _check_compacted(store)
