"""What golden stores are made with: a clock and ids that come again, and records by number."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import kmq_spark as kmq
from kmq_storage.environment import Environment
from kmq_storage.format.entries import Entry
from kmq_storage.format.records import stored_schema
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk

FILE_BYTES = 4096
BEGIN_US = 1_700_000_000_000_000


def environment() -> Environment:
    """A clock that goes on by a millisecond per look, and seeded ids."""
    rng, looks = random.Random(1), iter(range(1_000_000))
    return Environment(
        now_ns=lambda: BEGIN_US * 1000 + next(looks) * 1_000_000,
        new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
        rng=rng,
    )


@contextmanager
def golden_log(folder: Path, *, file_bytes: int = FILE_BYTES) -> Iterator[LocalLog]:
    """The log of a new store; nothing tells of it afterwards that somebody had it open."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=file_bytes), env)
    yield log
    log.close()
    without_traces(folder)


@contextmanager
def golden_store(folder: Path) -> Iterator[kmq.Store]:
    """The same as a store, by the clock of this machine."""
    open_identity(LocalDisk(folder), environment(), create=True, log_file_bytes=FILE_BYTES)
    with kmq.open(folder) as store:
        yield store
    without_traces(folder)


def without_traces(folder: Path) -> None:
    """Remove what only those need who have the store open."""
    shutil.rmtree(folder / "locks", ignore_errors=True)
    (folder / "log" / "hint").unlink()


def commit(log: CommitLog, *entries: Entry) -> None:
    """Commit entries without records."""
    log.commit([Unit(entries)])


def send(
    log: CommitLog,
    topic: bytes,
    partition: int,
    batch: SizedBatch,
    *also: Entry,
    staged: bool = False,
    version: int = 0,
) -> None:
    """Commit records, and other entries with them."""
    stager = Stager(log.files, file_ids(log), sync=True)
    records = PartitionRecords("-", topic, partition, (batch,), version)
    placed = stager.place(records, room=0 if staged else 2**20)
    log.commit([Unit(placed.entries + also, placed.bodies)])


def rows(first: int, count: int, columns: int) -> SizedBatch:
    """Records whose contents follow from their number."""
    numbers = range(first, first + count)
    every = {
        "timestamp": [BEGIN_US + n for n in numbers],
        "key": [f"key {n}".encode() if n % 2 else None for n in numbers],
        "value": [f"value {n}".encode() if n % 5 else None for n in numbers],
        "headers": [[{"key": "n", "value": str(n).encode()}] for n in numbers],
        "properties": [[("n", {"int": n}), ("name", {"text": str(n)})] for n in numbers],
    }
    schema = stored_schema(columns)
    arrays = [pa.array(every[field.name], field.type) for field in schema]
    return SizedBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), 10 * count)
