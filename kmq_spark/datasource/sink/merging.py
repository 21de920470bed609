"""Joins record batches of one partition to few of bounded size, each for one staged file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kmq_storage.format.joining import columns_of_all, joined
from kmq_storage.log.staging import PartitionRecords, SizedBatch

#: A staged file is full at this many bytes or rows. It holds one record batch, so it takes 96 bytes
#: of the commit; sealing makes larger files. A full file is written at once, while Spark makes the
#: next rows. Larger ones would leave more to write when the rows end, and the whole job waits then.
FILE_BYTES = 4 << 20
_FILE_ROWS = 1 << 19


def merged(run: Sequence[PartitionRecords]) -> PartitionRecords:
    """Join records of one partition to few batches of bounded size, all with the same columns."""
    columns = columns_of_all(sized.batch for records in run for sized in records.batches)
    done: list[SizedBatch] = []
    waiting: list[SizedBatch] = []
    rows = size = 0
    for sized in (sized for records in run for sized in records.batches):
        waiting.append(sized)
        rows, size = rows + sized.batch.num_rows, size + sized.size
        if rows >= _FILE_ROWS or size >= FILE_BYTES:
            done.append(_joined(waiting, columns))
            waiting, rows, size = [], 0, 0
    if waiting:
        done.append(_joined(waiting, columns))
    return replace(run[0], batches=tuple(done))


def _joined(run: Sequence[SizedBatch], columns: int) -> SizedBatch:
    batch = joined([sized.batch for sized in run], columns)
    return SizedBatch(batch, sum(sized.size for sized in run))
