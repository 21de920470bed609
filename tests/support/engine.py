"""Records for the tests of the engine: sent with keys and instants, read back as plain rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kmq_spark.client.store import Store
from kmq_storage.format.records import KEY, stored_schema
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager, file_ids
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition
from kmq_storage.model import Commit
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.memory import MemoryDisk
from tests.support.storage import open_log


@dataclass(frozen=True)
class Sent:
    """A record as it was sent; times in microseconds."""

    key: bytes | None
    value: bytes | None
    time: int = 0


def open_engine(disk: Disk | None = None, *, file_bytes: int = 4096) -> Store:
    """A store with small log files, in memory unless a disk is given."""
    if disk is None:
        disk = MemoryDisk(f"memory://{uuid.uuid4().hex}")
    return Store(open_log(disk, durable=False, file_bytes=file_bytes))


def send_rows(
    log: CommitLog, topic: str, rows: Sequence[Sent], *, partition: int = 0, staged: bool = False
) -> Commit:
    """One commit of these records."""
    return log.commit([unit_of_rows(log, topic, rows, partition=partition, staged=staged)])


def unit_of_rows(
    log: CommitLog, topic: str, rows: Sequence[Sent], *, partition: int = 0, staged: bool = False
) -> Unit:
    """The unit of a commit of these records."""
    schema = stored_schema(KEY)
    columns = [
        pa.array([row.time for row in rows], schema.field("timestamp").type),
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    size = sum(len(row.key or b"") + len(row.value or b"") for row in rows)
    return unit_of_batch(log, topic, SizedBatch(batch, size), partition=partition, staged=staged)


def unit_of_batch(
    log: CommitLog, topic: str, batch: SizedBatch, *, partition: int = 0, staged: bool = False
) -> Unit:
    """The unit of a commit of the records of this batch."""
    stager = Stager(log.files, file_ids(log), sync=True)
    topic_id = log.refresh().topic(topic).id
    records = PartitionRecords(topic, topic_id, partition, (batch,))
    placed = stager.place(records, room=0 if staged else 2**30)
    return Unit(placed.entries, placed.bodies)


def rows_of(
    store: Store, topic: str, partition: int = 0, *, start: int | None = None
) -> dict[int, Sent]:
    """What a partition holds, by offset."""
    bounds = None if start is None else {partition: start}
    table = store.read(topic, partitions=[partition], start=bounds).read_all()
    times = table["timestamp"].cast("int64").to_pylist()
    columns = (table["key"].to_pylist(), table["value"].to_pylist(), times)
    rows = [Sent(*values) for values in zip(*columns, strict=True)]
    return dict(zip(table["offset"].to_pylist(), rows, strict=True))


def held(state: StoreState, topic: str, partition: int) -> tuple[int, int]:
    """What the rows of the manifest say a partition holds: records and bytes."""
    found = state.topic(topic)
    part = found.partition(partition)
    rows = found.index(partition).rows(part.start, part.end)
    counts = [row.held_from(part.start) for row in rows]
    return sum(count for count, _ in counts), sum(size for _, size in counts)


def counted(part: Partition) -> tuple[int, int]:
    """What the commits added up to: records and bytes."""
    return part.rows, part.size


def files_below(disk: Disk, folder: str) -> list[str]:
    """The paths of the files in a folder."""
    return [file.path for file in disk.walk(folder)]
