"""The begin of the log is deleted: which files go, and how handles find out."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.errors import UnavailableError
from kmq_storage import paths
from kmq_storage.format.entries import BatchIdEntry, ProducerEntry
from kmq_storage.log.binding.binding import DuplicateCommitError, Unit
from kmq_storage.objects.memory import MemoryDisk
from tests.support.engine import Sent, files_below, open_engine, rows_of, send_rows
from tests.support.failing_disk import FailingDisk

ROWS = [Sent(b"k", b"v" * 50)] * 5


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(f"memory://{uuid.uuid4().hex}")


def _filled(disk: MemoryDisk) -> kmq.Store:
    store = open_engine(disk, file_bytes=4096)
    store.create_topic("t")
    for _ in range(30):
        send_rows(store.log, "t", ROWS)
    return store


def _files(disk: MemoryDisk) -> list[int]:
    names = files_below(disk, paths.LOG_FOLDER)
    found = [paths.try_first_lsn(name.rpartition("/")[2]) for name in names]
    return sorted(first for first in found if first is not None)


def test_files_go_that_are_over_before_an_lsn_and_never_the_last(disk: MemoryDisk):
    store = _filled(disk)
    files = _files(disk)
    assert len(files) > 3
    assert store.log.drop_before(files[1] - 1) == []
    assert store.log.drop_before(files[1]) == [paths.log_file(files[0])]
    assert _files(disk) == files[1:]
    dropped = store.log.drop_before(10_000)
    assert dropped == [paths.log_file(first) for first in files[1:-1]]
    assert _files(disk) == files[-1:]
    assert store.log.drop_before(10_000) == []


def _shortened(store: kmq.Store) -> None:
    store.seal()
    store.checkpoint()
    store.collect(grace=0)
    assert store.log.drop_before(0) == []


def test_every_handle_goes_on_whatever_it_does_next(disk: MemoryDisk):
    store = _filled(disk)
    others = [open_engine(disk) for _ in range(6)]
    for other in others:
        other.log.refresh()
    _shortened(store)
    send_rows(others[0].log, "t", ROWS)
    assert others[1].log.written_state().lsn == others[0].log.refresh().lsn
    others[2].log.sync(others[2].log.refresh().lsn)
    assert others[3].log.snapshot()[0].lsn == others[0].log.refresh().lsn
    others[4].create_topic("more")
    assert len(rows_of(others[5], "t")) == 155


def test_what_was_written_before_is_known_to_be_stored(disk: MemoryDisk):
    store = _filled(disk)
    for entry in (BatchIdEntry("query", 4), ProducerEntry("p", 1, 7)):
        store.log.commit([Unit((entry,))])
    lsn = store.log.refresh().lsn
    for _ in range(30):
        send_rows(store.log, "t", ROWS)
    _shortened(store)
    assert _files(disk)[0] > lsn
    with pytest.raises(DuplicateCommitError) as caught:
        open_engine(disk).log.append([Unit((BatchIdEntry("query", 4),))])
    assert caught.value.lsn == lsn - 1


def test_a_shortened_log_opens_after_a_start_of_the_machine(tmp_path: Path):
    disk = FailingDisk(tmp_path / "store")
    store = open_engine(disk)
    store.create_topic("t")
    for _ in range(30):
        send_rows(store.log, "t", ROWS)
    _shortened(store)
    send_rows(store.log, "t", ROWS)
    (tmp_path / "store" / paths.HINT).unlink()
    with kmq.open(tmp_path / "store", read_only=True) as reader:
        assert len(rows_of(reader, "t")) == 155
    (tmp_path / "store" / paths.HINT).unlink(missing_ok=True)
    writer = open_engine(FailingDisk(tmp_path / "store"))
    send_rows(writer.log, "t", ROWS)
    assert len(rows_of(writer, "t")) == 160


def test_a_failed_sync_of_a_shortened_log_is_repaired(tmp_path: Path):
    disk = FailingDisk(tmp_path / "store")
    store = open_engine(disk)
    store.create_topic("t")
    for _ in range(30):
        send_rows(store.log, "t", ROWS)
    _shortened(store)
    commit = send_rows(store.log, "t", ROWS)
    disk.failing["sync"] = 5
    try:
        store.log.sync(commit.lsn)
    except UnavailableError:
        pytest.fail("it was written again into a fresh file")
    del disk.failing["sync"]
    assert len(rows_of(open_engine(FailingDisk(tmp_path / "store")), "t")) == 155
