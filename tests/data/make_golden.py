"""Make the golden store of format 1: `python tests/data/make_golden.py FOLDER`.

Run once per format version; what it made before must stay readable for ever, so the files in
`format-1` are never made again.
"""

from __future__ import annotations

import random
import shutil
import sys
import uuid
from pathlib import Path

import pyarrow as pa

from kmq_storage.environment import Environment
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    TopicEntry,
)
from kmq_storage.format.records import HEADERS, KEY, PROPERTIES, stored_schema
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk

FILE_BYTES = 4096
BEGIN_US = 1_700_000_000_000_000
ORDERS, AUDIT, GONE = (bytes([n]) * 16 for n in (1, 2, 3))


def environment() -> Environment:
    """A clock that goes on by a millisecond per look, and seeded ids."""
    rng, looks = random.Random(1), iter(range(1_000_000))
    return Environment(
        now_ns=lambda: BEGIN_US * 1000 + next(looks) * 1_000_000,
        new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
        rng=rng,
    )


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


def make(folder: Path) -> None:
    """Write the store: every kind of entry, two log files, and one staged file."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    _commit(log, TopicEntry(ORDERS, "orders", 2, {"capacity": 1000}))
    _commit(log, TopicEntry(AUDIT, "audit", 1, {}))
    _commit(log, TopicEntry(GONE, "gone", 1, {}))
    _records(log, ORDERS, 0, rows(0, 3, 0), ProducerEntry("producer", 1, 0))
    _records(log, ORDERS, 1, rows(10, 2, KEY | HEADERS), BatchIdEntry("query", 7))
    _commit(log, GroupEntry("group", 1, "member", "host-1", {"orders": [0, 1]}))
    _records(log, AUDIT, 0, rows(20, 2, KEY | HEADERS | PROPERTIES))
    _records(log, ORDERS, 0, rows(30, 40, KEY), staged=True)
    _commit(log, GroupOffsetsEntry("group", 1, ORDERS, ((0, 43), (1, 1))))
    _commit(log, TopicEntry(GONE, "gone", 0, {}))
    _records(log, ORDERS, 0, rows(70, 1, 0), ProducerEntry("producer", 1, 1))
    log.close()
    without_traces(folder)


def without_traces(folder: Path) -> None:
    """Remove what only those need who have the store open."""
    shutil.rmtree(folder / "locks")
    (folder / "log" / "hint").unlink()


def _commit(log: CommitLog, *entries: Entry) -> None:
    log.commit([Unit(entries)])


def _records(
    log: CommitLog,
    topic: bytes,
    partition: int,
    batch: SizedBatch,
    *also: Entry,
    staged: bool = False,
) -> None:
    stager = Stager(log.files, file_ids(log), sync=True, inline_bytes_max=0 if staged else 2**20)
    placed = stager.place(PartitionRecords("-", topic, partition, (batch,)), room=2**20)
    log.commit([Unit(placed.entries + also, placed.bodies)])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
