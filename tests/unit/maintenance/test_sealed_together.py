"""Sealing and merging many partitions of few records: they are synced and named together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kmq_spark.client.store import Store
from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.manifest import SEGMENT
from kmq_storage.maintenance.replacement import Replacement
from kmq_storage.maintenance.seal import plan_seal, seal, together
from tests.support.engine import Sent, files_below, open_engine, rows_of, send_rows
from tests.support.failing_disk import FailingDisk

PARTITIONS = 9


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    return FailingDisk(tmp_path / "store")


@pytest.fixture
def store(disk: FailingDisk) -> Iterator[Store]:
    with open_engine(disk, file_bytes=64 * 1024) as store:
        store.create_topic("t", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            send_rows(store.log, "t", _rows(number), partition=number)
        yield store


def _rows(number: int) -> list[Sent]:
    return [Sent(b"k", b"%d" % number)]


def _sealed(store: Store) -> list[int]:
    topic = store.log.refresh().topic("t")
    return [n for n in range(PARTITIONS) if _kinds(store, n) == [SEGMENT] and topic.parts[n].end]


def _kinds(store: Store, number: int) -> list[int]:
    return [row.kind for row in store.log.refresh().topic("t").index(number).rows(0, 9)]


def _check_records(store: Store) -> None:
    for number in range(PARTITIONS):
        assert list(rows_of(store, "t", number).values()) == _rows(number)


def test_small_segments_are_synced_together_and_named_by_one_commit(
    store: Store, disk: FailingDisk
):
    before = store.log.refresh().lsn
    assert seal(store.log, plan_seal(store.log.refresh())).segments == PARTITIONS
    assert disk.calls.count("stage synced") == 1
    assert store.log.refresh().lsn == before + 1
    assert _sealed(store) == [*range(PARTITIONS)]
    _check_records(store)


def test_segments_of_many_partitions_are_merged_by_one_commit(store: Store, disk: FailingDisk):
    seal(store.log, plan_seal(store.log.refresh()))
    for number in range(PARTITIONS):
        send_rows(store.log, "t", _rows(number), partition=number)
    seal(store.log, plan_seal(store.log.refresh()))
    before, files = store.log.refresh().lsn, len(disk.calls)
    report = store.compact("t")
    assert (report.before, report.after) == (2 * PARTITIONS, PARTITIONS)
    assert disk.calls[files:].count("stage synced") == 1
    assert store.log.refresh().lsn == before + 1
    assert [*map(len, (rows_of(store, "t", n) for n in range(PARTITIONS)))] == [2] * PARTITIONS


def test_of_segments_that_were_written_together_those_are_refused_whose_partition_changed(
    store: Store, disk: FailingDisk
):
    plan = list(plan_seal(store.log.refresh()))
    for number in (0, 4):
        seal(store.log, plan_seal(store.log.refresh(), only=("t", number)))
    report = seal(store.log, plan)
    assert (report.segments, report.conflicts) == (PARTITIONS - 2, 2)
    assert len(files_below(disk, paths.SEGMENT_FOLDER)) == PARTITIONS
    assert _sealed(store) == [*range(PARTITIONS)]
    _check_records(store)


def test_of_segments_that_are_written_together_a_damaged_one_leaves_those_before_it(
    store: Store, disk: FailingDisk
):
    file = disk.root / paths.log_file(1)
    with file.open("r+b") as log:  # in place, as it is mapped
        log.seek(_value_of(store, 5))
        log.write(b"?")
    with pytest.raises(CorruptionError, match="t-5"):
        seal(store.log, plan_seal(store.log.refresh()))
    assert _sealed(store) == [0, 1, 2, 3, 4]
    assert len(files_below(disk, paths.SEGMENT_FOLDER)) == 5


def _value_of(store: Store, number: int) -> int:
    (row,) = store.log.refresh().topic("t").index(number).rows(0, 9)
    return row.position + row.length - 1


def test_groups_are_bounded_by_segments_and_bytes_and_end_at_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    plan = list(plan_seal(store.log.refresh()))

    def broken() -> Iterator[Replacement]:
        yield from plan[:5]
        raise CorruptionError("a page is damaged")

    assert [len(group) for group in together(plan, 4)] == [4, 4, 1]
    assert [len(group) for group in together(plan, 1)] == [1] * PARTITIONS
    found: list[int] = []
    with pytest.raises(CorruptionError):
        found.extend(map(len, together(broken(), 4)))
    assert found == [4, 1]
    monkeypatch.setattr(limits, "WRITE_BYTES", 2 * plan[0].rows[0].weight)
    assert [len(group) for group in together(plan)] == [2, 2, 2, 2, 1]
