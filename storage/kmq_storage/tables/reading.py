"""Read a table, or a part of it, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.tables.columns import COLUMNS, table_batch
from kmq_storage.tables.commit_rows import commit_batches, names_of
from kmq_storage.tables.segment_rows import segment_batches
from kmq_storage.tables.state_rows import ROWS


def table_of(
    log: CommitLog, state: StoreState, table: str, *, limit: int | None = None
) -> pa.Table:
    """The rows of a table as of a state, up to a limit; of `commits` the newest ones."""
    batches, rows = [], 0
    for batch in _batches(log, state, table, limit):
        batches.append(batch)
        rows += batch.num_rows
        if limit is not None and rows >= limit:
            break
    return pa.Table.from_batches(batches, COLUMNS[table]).slice(0, limit)


def _batches(
    log: CommitLog, state: StoreState, table: str, limit: int | None
) -> Iterator[pa.RecordBatch]:
    match table:
        case "segments":
            yield from segment_batches(state)
        case "commits":
            oldest = next(log.commits(None), None)
            if oldest is not None:
                first = oldest.lsn if limit is None else max(oldest.lsn, state.lsn - limit + 1)
                yield from commit_batches(log, first, state.lsn, names_of(state))
        case _:
            yield table_batch(table, islice(ROWS[table](log, state), limit))
