"""Who stalls between writing a file and the commit that names it, while collection goes on.

The file may be deleted; then the log says so first, and the commit is refused.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from kmq_spark.client.store import Store
from kmq_spark.errors import ConflictError
from kmq_storage import paths
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.layout_entries import CondemnEntry
from kmq_storage.format.records import COMPACTED
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.maintenance import segment_files
from kmq_storage.maintenance.collect import collect
from tests.simulation.collection_mutants import names_what_was_condemned
from tests.support.dying_disk import DyingDisk
from tests.support.engine import Sent, files_below, open_engine, rows_of, send_rows, unit_of_rows

DAY = 86_400_000_000
ROWS = [Sent(b"k%d" % (n % 5), b"v%d" % n, n) for n in range(10)]


@pytest.fixture
def disk() -> DyingDisk:
    return DyingDisk(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def store(disk: DyingDisk) -> Store:
    store = open_engine(disk)
    store.create_topic("t", cleanup="compact")
    send_rows(store.log, "t", ROWS)
    store.checkpoint()
    return store


def _another_collects(disk: DyingDisk) -> None:
    """Two days pass, and another process collects."""
    disk.ahead += 2 * DAY
    collect(open_engine(disk).log, grace=0)


def _boundaries(store: Store) -> list[int]:
    entries = [entry for commit in store.log.commits(None) for entry in commit.entries]
    return [entry.before for entry in entries if isinstance(entry, CondemnEntry)]


def test_a_commit_that_names_a_file_which_was_collected_is_refused(store: Store, disk: DyingDisk):
    unit = unit_of_rows(store.log, "t", ROWS, staged=True)
    _another_collects(disk)
    assert files_below(disk, paths.STAGED_FOLDER) == []
    with pytest.raises(ConflictError, match="write it again"):
        store.log.commit([unit])
    assert list(rows_of(store, "t")) == list(range(10))


def test_that_such_a_commit_is_stored_is_found_when_it_is_planted(
    store: Store, disk: DyingDisk, monkeypatch: pytest.MonkeyPatch
):
    names_what_was_condemned(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_commit_that_names_a_file_which_was_collected_is_refused(store, disk)


def test_a_file_that_was_committed_while_it_was_being_condemned_stays(
    store: Store, disk: DyingDisk, monkeypatch: pytest.MonkeyPatch
):
    unit = unit_of_rows(store.log, "t", ROWS, staged=True)
    append = LocalLog.append

    def overtaken(log: LocalLog, units: list[Unit]) -> object:
        monkeypatch.setattr(LocalLog, "append", append)
        store.log.commit([unit])
        return append(log, units)

    monkeypatch.setattr(LocalLog, "append", overtaken)
    _another_collects(disk)
    assert len(_boundaries(store)) == 1
    assert list(rows_of(store, "t").values()) == ROWS + ROWS


def test_a_producer_whose_file_was_collected_writes_it_again(
    store: Store, disk: DyingDisk, monkeypatch: pytest.MonkeyPatch
):
    append = LocalLog.append

    def late(log: LocalLog, units: list[Unit]) -> object:
        if any(isinstance(entry, RecordsEntry) for unit in units for entry in unit.entries):
            monkeypatch.setattr(LocalLog, "append", append)
            assert len(files_below(disk, paths.STAGED_FOLDER)) == 1
            _another_collects(disk)
            assert files_below(disk, paths.STAGED_FOLDER) == []
        return append(log, units)

    values = [b"%d" % n * 500_000 for n in range(4)]
    large = pa.record_batch({"value": values})
    store.create_topic("large", partitions=1)
    with store.producer() as producer:
        monkeypatch.setattr(LocalLog, "append", late)
        assert producer.send_arrow("large", large).result().offsets == {0: (0, 4)}
    assert store.read("large").read_all()["value"].to_pylist() == values


def test_a_sealer_whose_segment_was_collected_is_one_that_came_too_late(
    store: Store, disk: DyingDisk, monkeypatch: pytest.MonkeyPatch
):
    write = segment_files.write_segments

    def slow(*args: object, **options: object) -> object:
        entries = write(*args, **options)  # type: ignore[arg-type]
        _another_collects(disk)
        return entries

    monkeypatch.setattr("kmq_storage.maintenance.segments.write_segments", slow)
    assert store.seal().conflicts == 1
    monkeypatch.undo()
    assert store.seal().segments == 1
    assert list(rows_of(store, "t").values()) == ROWS


def test_a_segment_of_long_ago_can_still_be_marked(store: Store, disk: DyingDisk):
    store.create_topic("keyed", partitions=1, cleanup="compact")
    send_rows(store.log, "keyed", [Sent(b"one", b"1")])
    store.seal()
    before = files_below(disk, paths.SEGMENT_FOLDER)
    unit_of_rows(store.log, "t", ROWS, staged=True)  # an orphan
    _another_collects(disk)
    assert store.log.refresh().condemned > 0
    store.compact("keyed")
    (row,) = store.log.refresh().topic("keyed").index(0).rows(0, 1)
    assert row.columns & COMPACTED
    assert files_below(disk, paths.SEGMENT_FOLDER) == before


def test_what_is_condemned_survives_a_checkpoint(store: Store, disk: DyingDisk):
    unit = unit_of_rows(store.log, "t", ROWS, staged=True)
    _another_collects(disk)
    store.checkpoint()
    with pytest.raises(ConflictError):
        open_engine(disk).log.commit([unit])


def test_a_collection_without_orphans_commits_nothing(store: Store, disk: DyingDisk):
    store.seal()
    _another_collects(disk)
    assert _boundaries(store) == []
