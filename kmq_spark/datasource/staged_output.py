"""Record batches of one task on their way to disk: gathered per partition, then staged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from kmq_storage import limits
from kmq_storage.environment import SYSTEM
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.records import columns_of, stored_schema
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager
from kmq_storage.objects.open import open_disk

#: A task holds at most about this much in memory before it writes files.
_HELD_BYTES_MAX = 64 << 20

#: What a task has left below this travels to the driver instead of becoming files.
_MESSAGE_BYTES_MAX = 128 << 10

_Place = tuple[bytes, int]


class StagedOutput:
    """Takes records of any partitions and brings them to disk in few files, in their order."""

    def __init__(self, url: str) -> None:
        self._stager = Stager(open_disk(url), SYSTEM.new_uuid, sync=True)
        self._waiting: dict[_Place, list[PartitionRecords]] = {}
        self._held = 0
        self._staged: list[RecordsEntry] = []

    def add(self, records: Iterable[PartitionRecords]) -> None:
        """Take records, and write files when much is waiting."""
        for each in records:
            self._waiting.setdefault((each.topic_id, each.partition), []).append(each)
            self._held += sum(sized.size for sized in each.batches)
        if self._held >= _HELD_BYTES_MAX:
            self._stage_all()

    def finish(self) -> tuple[tuple[RecordsEntry, ...], tuple[PartitionRecords, ...]]:
        """What was staged, and what is small enough to travel with the commit message."""
        if self._held > _MESSAGE_BYTES_MAX:
            self._stage_all()
        return tuple(self._staged), tuple(merged(run) for run in self._waiting.values())

    def _stage_all(self) -> None:
        for run in self._waiting.values():
            self._staged += self._stager.stage(merged(run))
        self._waiting.clear()
        self._held = 0


def merged(run: Sequence[PartitionRecords]) -> PartitionRecords:
    """Records of one partition as one: few batches of bounded size, all with the same columns."""
    schema = stored_schema(_all_columns(run))
    done: list[SizedBatch] = []
    open_run: list[SizedBatch] = []
    rows = size = 0
    for sized in (sized for records in run for sized in records.batches):
        rows, size = rows + sized.batch.num_rows, size + sized.size
        if open_run and (rows > limits.BATCH_ROWS_MAX or size > limits.STAGED_BATCH_BYTES):
            done.append(_joined(open_run, schema))
            open_run, rows, size = [], sized.batch.num_rows, sized.size
        open_run.append(sized)
    done.append(_joined(open_run, schema))
    return replace(run[0], batches=tuple(done))


def _all_columns(run: Sequence[PartitionRecords]) -> int:
    columns = 0
    for records in run:
        for sized in records.batches:
            columns |= columns_of(sized.batch.schema)
    return columns


def _joined(run: Sequence[SizedBatch], schema: pa.Schema) -> SizedBatch:
    batches = [_widened(sized.batch, schema) for sized in run]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return SizedBatch(batch, sum(sized.size for sized in run))


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with every column of the schema; null where they had none."""
    names = batch.schema.names
    if len(names) == len(schema):
        return batch
    arrays = [
        batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
