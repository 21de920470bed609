"""One record by its offset, in a store of many segments: its segment's footer and its batch are
read, and nothing else. Finds a search through files, and a size or a schema that is read beside."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage import limits
from kmq_storage.environment import SYSTEM
from kmq_storage.log.checkpoints import paging
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.support.counting_bucket import CountingBucket

SEGMENTS = 40
ROWS = 30
VALUE = bytes(40_000)


def _fill(store: kmq.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 1.2 MB, of three batches each; the rows of the manifest in three pages."""
    monkeypatch.setattr(limits, "BATCH_ROWS_MAX", ROWS // 3)
    monkeypatch.setattr(limits, "STAGED_BATCH_BYTES", len(VALUE) * ROWS // 3)
    monkeypatch.setattr(paging, "PAGE_ROWS", 8)
    monkeypatch.setattr(paging, "_PAGE_ROWS_MIN", 4)
    store.create_topic("t")
    with store.producer() as producer:
        for _ in range(SEGMENTS):
            producer.send_arrow("t", pa.table({"value": [VALUE] * ROWS})).result(60)
            assert store.seal().segments == 1
    store.checkpoint()
    monkeypatch.undo()


def _reads_of_each(store: kmq.Store, reads: Callable[[], int]) -> list[int]:
    """How many reads each of some records takes, once all pages of the manifest were looked at."""
    topic = store.log.refresh().topic("t")
    assert len(topic.places(0, 0, SEGMENTS * ROWS)) == SEGMENTS
    found = []
    for offset in random.Random(7).sample(range(SEGMENTS * ROWS), 50):
        before = reads()
        one = store.read("t", start={0: offset}, end={0: offset + 1}).read_all()
        assert one["offset"].to_pylist() == [offset]
        found.append(reads() - before)
    return found


def test_one_record_of_a_large_bucket_takes_at_most_two_requests(monkeypatch: pytest.MonkeyPatch):
    bucket = CountingBucket("memory-bucket://one")
    with bucket.store() as store:
        _fill(store, monkeypatch)
    with bucket.store(cache_bytes=1) as store:  # nothing of another record is there already
        store.topics()
        asked = bucket.asked
        found = _reads_of_each(
            store, lambda: sum(not each.name.startswith("log/") for each in asked)
        )
    assert max(found) <= 2


def test_one_record_of_a_large_folder_takes_at_most_two_reads_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    disk = _CountingDisk(tmp_path)
    with _store(disk) as store:
        _fill(store, monkeypatch)
    with _store(disk) as store:
        found = _reads_of_each(store, lambda: disk.reads)
        disk.mapped.clear()
        store.read("t", start={0: 700}, end={0: 701}).read_all()
    assert max(found) <= 2
    assert len(disk.mapped) == 1


def _store(disk: LocalDisk) -> AbstractContextManager[kmq.Store]:
    identity = open_identity(disk, SYSTEM, create=True)
    return kmq.Store(open_commit_log(disk, identity, SYSTEM), maintenance=False)


class _CountingDisk(LocalDisk):
    """Counts what is read of segments, and of pages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads = 0
        self.mapped: list[str] = []

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        """A file each of whose slices counts."""
        self.mapped.append(path)
        contents = super().map(path, first)
        if path.startswith("segments/"):
            return _Counted(self, contents)
        self.reads += 1
        return contents


class _Counted:
    """A file to slice from."""

    def __init__(self, disk: _CountingDisk, contents: pa.Buffer) -> None:
        self._disk = disk
        self._contents = contents
        self.size = contents.size

    def slice(self, start: int, length: int) -> pa.Buffer:
        """Some bytes: one read."""
        self._disk.reads += 1
        return self._contents.slice(start, length)

    def parts(self, start: int, length: int, runs: list[tuple[int, int]]) -> pa.Buffer:
        """The bytes from a position on, of which only some runs are looked at."""
        self._disk.reads += len(runs)
        return self._contents.slice(start, length)
