"""The table `segments`: the rows of the manifest's pages, of which there may be a million.

The rows since the last checkpoint, which are in no page yet, are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.manifest import LOG, SEGMENT, STAGED, Key, Page, Row
from kmq_storage.log.state.live_rows import Cover, covers, live_spans
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.tables.columns import COLUMNS, table_batch

_KINDS = {SEGMENT: "sealed", STAGED: "staged"}


#: A row that is in no page yet: the topic's name, the key of the partition, and the row.
Recent = tuple[str, Key, Row]


def segment_batches(state: StoreState) -> Iterator[pa.RecordBatch]:
    """All rows of a reader's state, one batch per page and one of the recent rows."""
    assert state.manifest is not None, "a reader's state has a manifest"
    known = covers(state)
    for ref in state.manifest.refs:
        yield page_batch(state.manifest.page(ref), known)
    yield recent_batch(recent_rows(state))


def recent_rows(state: StoreState) -> Iterator[Recent]:
    """The rows that are in no page yet."""
    for name, topic in sorted(state.topics.items()):
        for number, part in enumerate(topic.parts):
            for row in topic.index(number).recent_rows():
                if row.kind != LOG and row.end_offset > part.start:
                    yield name, (topic.id, number), row


def recent_batch(rows: Iterable[Recent]) -> pa.RecordBatch:
    """These rows as a batch of the table."""
    return table_batch("segments", [_row(*each) for each in rows])


def _row(topic: str, key: Key, row: Row) -> Sequence[Any]:
    place = (topic, key[1], row.base_offset, row.end_offset, row.rows, row.size)
    times = (row.min_timestamp, row.max_timestamp, row.time)
    return (*place, _KINDS[row.kind], row.path(key), row.bytes, *times, row.compacted)


def page_batch(page: Page, known: Mapping[Key, Cover]) -> pa.RecordBatch:
    """The live rows of a page; made column by column, since a Python object per cell is slow."""
    spans = [
        (key, cover, rows[page.kind[rows] != LOG]) for key, cover, rows in live_spans(page, known)
    ]
    wanted = np.concatenate([rows for _, _, rows in spans] or [np.empty(0, np.int64)])
    found = page.batch.take(pa.array(wanted, pa.int64()))
    counts = [len(rows) for _, _, rows in spans]
    topics = np.repeat([cover.topic for _, cover, _ in spans], counts).tolist()
    keys = chain.from_iterable([key] * len(rows) for key, _, rows in spans)
    sealed = page.kind[wanted] == SEGMENT
    columns = {
        "topic": pa.array(topics, pa.string()),
        "bytes": found.column("size"),
        "kind": pa.array(np.where(sealed, "sealed", "staged").tolist(), pa.string()),
        "file": pa.array(_files(keys, found), pa.string()),
        "file_bytes": pa.array(page.bytes[wanted]),
        "committed": found.column("time"),
        "compacted": pa.array(page.compacted[wanted]),
    }
    schema = COLUMNS["segments"]
    arrays = [columns.get(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            (found.column(field.name) if array is None else array).cast(field.type)
            for array, field in zip(arrays, schema, strict=True)
        ],
        schema=schema,
    )


def _files(keys: Iterator[Key], found: pa.RecordBatch) -> list[str]:
    facts = (found.column(name).to_pylist() for name in ("kind", "base_offset", "file"))
    return [
        paths.segment_file(topic_id, partition, base, file)
        if kind == SEGMENT
        else paths.staged_file(file)
        for (topic_id, partition), kind, base, file in zip(keys, *facts, strict=True)
    ]
