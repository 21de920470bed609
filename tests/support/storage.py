"""A commit log for tests: a store on any disk, units of records, and what is stored in the end."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from kmq_storage import limits
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.format.entries import Entry, TopicEntry
from kmq_storage.format.records import (
    TIMESTAMP_TYPE,
    EncodedBatch,
    columns_of,
    encode_batch,
    stored_schema,
)
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.collect import collect
from kmq_storage.model import Commit
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import Files
from kmq_storage.objects.local import LocalDisk

TOPIC_ID = bytes(range(16))
FILE_BYTES = 64 * 1024


def open_log(
    disk: Disk | BucketFiles,
    *,
    durable: bool = True,
    create: bool = True,
    file_bytes: int = FILE_BYTES,
    environment: Environment = SYSTEM,
) -> CommitLog:
    """A handle on the store of this disk, with small log files."""
    if isinstance(disk, BucketFiles):
        disk.races = ()  # tests/contract/test_probe.py has them; here they would only take time
    identity = open_identity(disk, environment, create=create, log_file_bytes=file_bytes)
    return open_commit_log(disk, identity, environment, durable=durable)


def open_folder(folder: Path, *, durable: bool = True, read_only: bool = False) -> CommitLog:
    """A handle on the store in this folder."""
    disk = LocalDisk(folder, read_only=read_only)
    return open_log(disk, durable=durable, create=not read_only)


def make_topic(log: CommitLog, *, partitions: int = 2) -> None:
    """Topic `t` in one commit."""
    log.commit([Unit((TopicEntry(TOPIC_ID, "t", partitions, {}),))])


def batch_of(values: Sequence[bytes]) -> SizedBatch:
    """A stored batch with these values at timestamps 0, 1, 2, ..."""
    columns = [pa.array(range(len(values)), TIMESTAMP_TYPE), pa.array(values, pa.binary())]
    batch = pa.RecordBatch.from_arrays(columns, schema=stored_schema(0))
    return SizedBatch(batch, sum(map(len, values)))


def encoded_batch(batch: pa.RecordBatch, *, size: int) -> EncodedBatch:
    """A stored batch of so many bytes as a commit has it inside."""
    return encode_batch(batch, size=size, columns=columns_of(batch.schema), proven=False)


def unit_of(
    disk: Files,
    values: Sequence[bytes],
    *,
    topic_id: bytes = TOPIC_ID,
    partition: int = 0,
    staged: bool = False,
    sync: bool = True,
    also: tuple[Entry, ...] = (),
) -> Unit:
    """A unit of records, inside the frame or staged."""
    stager = Stager(disk, lambda: uuid.uuid4().bytes, sync=sync)
    records = PartitionRecords("t", topic_id, partition, (batch_of(values),))
    placed = stager.place(records, room=0 if staged else 2**30)
    return Unit(placed.entries + also, placed.bodies, synced=sync)


def send(log: CommitLog, *values: bytes, partition: int = 0, staged: bool = False) -> Commit:
    """Commit values to topic `t`, as durable as the log is."""
    unit = unit_of(log.files, values, partition=partition, staged=staged, sync=log.durable)
    return log.commit([unit])


def collect_all(log: CommitLog, age: float = 0.0) -> None:
    """Collect what is at least this many seconds old and that nothing refers to."""
    with patch.object(limits, "ORPHAN_AGE", age):
        collect(log, grace=age)


def values_of(log: CommitLog, partition: int = 0) -> list[bytes]:
    """Every value of a partition of topic `t` that is visible; offsets are dense."""
    topic = log.refresh().topic("t")
    reader, values, position = ChunkReader(log.files), [], 0
    for chunk in topic.places(partition, 0, topic.partition(partition).end):
        assert chunk.base_offset == position
        batch = reader.read(
            chunk, chunk.base_offset, chunk.end_offset, topic="t", partition=partition
        )
        values += batch.column("value").to_pylist()
        position = chunk.end_offset
    assert position == topic.partition(partition).end
    return values
