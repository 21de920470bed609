"""The table `segments`: pages of the manifest, read by the executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.store_url import storage_options
from kmq_storage.errors import CorruptionError, UnavailableError
from kmq_storage.format.manifest import Key, Page, PageRef
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.state.live_rows import Cover
from kmq_storage.objects.open import open_files
from kmq_storage.tables.segment_rows import Recent, page_batch, recent_batch


@dataclass(frozen=True)
class SegmentsTask(InputPartition):
    """Rows of some pages of the manifest, and recent rows that are in no page yet."""

    pages: tuple[PageRef, ...]
    #: Facts on the partitions that have rows in these pages.
    known: Mapping[Key, Cover]
    recent: tuple[Recent, ...] = ()

    def batches(self, url: str) -> Iterator[pa.RecordBatch]:
        """The rows of this task."""
        files = open_files(url, read_only=True, storage_options=storage_options(url))
        try:
            manifest = Manifest(files, self.pages)
            for ref in self.pages:
                yield page_batch(_read(manifest, ref), self.known)
        finally:
            files.close()
        if self.recent:
            yield recent_batch(self.recent)


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
