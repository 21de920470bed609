"""The table `segments`: pages of the manifest, read by the executors; there may be a million rows.

What is not in a page yet, since the last checkpoint, is little and goes along with a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.columns.tables import table_arrow_schema, table_batch
from kmq_spark.datasource.store_url import storage_options
from kmq_storage import paths
from kmq_storage.errors import CorruptionError, UnavailableError
from kmq_storage.format.manifest import LOG, SEGMENT, STAGED, Key, Page, PageRef, Row
from kmq_storage.log.live_rows import Cover, live_spans
from kmq_storage.log.manifest import Manifest
from kmq_storage.objects.open import open_files

_KINDS = {SEGMENT: "sealed", STAGED: "staged"}


@dataclass(frozen=True)
class SegmentsTask(InputPartition):
    """Rows of some pages of the manifest, and some that are in no page."""

    pages: tuple[PageRef, ...]
    #: What is known of the partitions that have rows in these pages.
    known: Mapping[Key, Cover]
    recent: tuple[tuple[str, Key, Row], ...] = ()

    def batches(self, url: str) -> Iterator[pa.RecordBatch]:
        """The rows of this task."""
        files = open_files(url, read_only=True, storage_options=storage_options(url))
        try:
            manifest = Manifest(files, self.pages)
            for ref in self.pages:
                yield _page_batch(_read(manifest, ref), self.known)
        finally:
            files.close()
        if self.recent:
            yield table_batch("segments", [_row(*each) for each in self.recent])


def _row(topic: str, key: Key, row: Row) -> Sequence[Any]:
    place = (topic, key[1], row.base_offset, row.end_offset, row.rows, row.size)
    times = (row.min_timestamp, row.max_timestamp, row.time)
    return (*place, _KINDS[row.kind], row.path(key), row.bytes, *times, row.compacted)


def _read(manifest: Manifest, ref: PageRef) -> Page:
    try:
        return manifest.page(ref)
    except CorruptionError as error:
        if not error.context.get("missing"):
            raise
        raise UnavailableError(
            f"{error.message}: it was collected since this table was planned; load it again",
            **error.context,
        ) from error


def _page_batch(page: Page, known: Mapping[Key, Cover]) -> pa.RecordBatch:
    """The rows of a page that count, without a value per cell being made."""
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
    schema = table_arrow_schema("segments")
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
