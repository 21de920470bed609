"""Runs: the records of a keyed topic in the order of their queues, and the directory of these.

Records that are no message, for want of a key or a value, come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kmq_storage import limits
from kmq_storage.format.queue_table import QueueTable, grouped
from kmq_storage.format.records import sealed_batch, timestamp_bounds, with_light_nulls
from kmq_storage.format.segment import SealedBatch
from kmq_storage.log.scan import Slice

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Records in the order of their queues; rows of the table count from the first of them."""

    records: pa.RecordBatch
    table: QueueTable

    @property
    def rows(self) -> int:
        """How many records there are."""
        return int(self.records.num_rows)

    @property
    def batch_rows(self) -> int:
        """The rows of one record batch: few, so that a look at one queue reads little."""
        rows = self.rows
        fitting = limits.RUN_BATCH_BYTES * rows // max(int(self.records.nbytes), 1)
        return min(max(fitting, 1), limits.RUN_BATCH_ROWS)

    @property
    def batches(self) -> int:
        """How many record batches it makes."""
        return -(-self.rows // self.batch_rows)

    def sealed(self, base: int, size: int) -> Iterator[SealedBatch]:
        """Its record batches for a segment that begins at an offset and has so many bytes."""
        rows, step = self.rows, self.batch_rows
        for first in range(0, rows, step):
            batch = self.records.slice(first, step)
            behind = first + batch.num_rows
            share = size * behind // rows - size * first // rows
            bounds = timestamp_bounds(batch)
            yield SealedBatch(base + first, base + behind, with_light_nulls(batch), *bounds, share)


def sorted_run(slices: Iterable[Slice], schema: pa.Schema) -> SortedRun:
    """The records of a range of offsets in the order of their queues."""
    batches = [
        sealed_batch(part.batch, pa.array(part.offsets(), pa.int64()), schema)
        for part in slices
        if part.batch.num_rows
    ]
    records = pa.Table.from_batches(batches, schema)
    order, table = _order(records)
    found = records.take(pa.array(order)).combine_chunks().to_batches()
    return SortedRun(found[0] if found else pa.RecordBatch.from_pylist([], schema), table)


def _order(records: pa.Table) -> tuple[npt.NDArray[np.int64], QueueTable]:
    keys = records.column("key").combine_chunks()
    valid = records.column("value").is_valid().combine_chunks()
    are_messages = np.asarray(keys.is_valid()) & np.asarray(valid)
    others = np.flatnonzero(~are_messages)
    if not len(others):
        table, order = grouped(keys)
        return order, table
    table, order = grouped(keys.filter(pa.array(are_messages)))
    rows = np.concatenate([others, np.flatnonzero(are_messages)[order]])
    return rows, QueueTable(table.names, table.starts + len(others))
