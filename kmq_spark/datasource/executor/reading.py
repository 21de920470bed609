"""On the executor: the records of one task, from the log or from an archive, in Spark's columns."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.executor.record_batches import (
    BATCH_ROWS,
    Origin,
    gathered,
    of_archive,
    of_log,
)
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.planning.data_loss import Losses
from kmq_spark.datasource.planning.history import ArchivedTask, history_of, small_parts
from kmq_spark.datasource.planning.plan import held
from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_spark.datasource.planning.tasks import PlacedRanges, Task
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_spark.datasource.planning.view import View
from kmq_spark.datasource.store_url import storage_options
from kmq_storage.errors import CorruptionError, NotFoundError
from kmq_storage.format.layout import layout_of
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.open import open_place
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import moved, scan, scan_places
from kmq_storage.objects.files import Files

if TYPE_CHECKING:
    from kmq_spark.lake.reading import ArchivedRange


def read_partition(
    options: SourceOptions, partition: InputPartition, view: View
) -> Iterator[pa.RecordBatch]:
    """The records of one task; where no tasks were planned, Spark makes an empty one."""
    if isinstance(partition, Task):
        read = _read_queues if view.keyed else _read_log
        return read(options, partition, view)
    if isinstance(partition, ArchivedTask):
        return gathered(_of_archive(partition.ranges, view))
    return iter(())


def _read_log(options: SourceOptions, task: Task, view: View) -> Iterator[pa.RecordBatch]:
    files, _ = open_place(options.url, read_only=True, storage_options=storage_options(options.url))
    try:
        pieces = _of_log(options, files, task, view)
        yield from gathered(batch for batch in pieces if batch.num_rows)
    finally:
        files.close()


def _read_queues(options: SourceOptions, task: Task, view: View) -> Iterator[pa.RecordBatch]:
    from kmq_spark.datasource.executor.queue_reading import read_queues  # slow, and few need it

    return gathered(batch for batch in read_queues(options, task, view) if batch.num_rows)


def _of_log(
    options: SourceOptions, files: Files, task: Task, view: View
) -> Iterator[pa.RecordBatch]:
    reader, known = ChunkReader(files), Manifest(files, ())
    for run in task.runs:
        pages = run.index.pages(known)
        for wanted in run:
            yield from _RangeReader(options, run, wanted, view).batches(pages, reader)


class _RangeReader:
    """Reads records of one partition; their files may be moved or trimmed meanwhile."""

    def __init__(
        self, options: SourceOptions, run: PlacedRanges, wanted: OffsetRange, view: View
    ) -> None:
        self._options = options
        self._index = run.index
        self._wanted = wanted
        self._view = view
        self._layout = layout_of(run.schemas, frozenset(view.arrow.names))
        self._origin = Origin(run.topic, uuid.UUID(bytes=run.index.topic_id), wanted.partition)

    def batches(self, pages: Manifest, reader: ChunkReader) -> Iterator[pa.RecordBatch]:
        """The records in Spark's columns; those in files that moved are looked up again."""
        wanted, position = self._wanted, self._wanted.start
        try:
            places = self._index.places(pages, wanted.partition, wanted.start, wanted.end)
            where = (wanted.topic, wanted.partition, (wanted.start, wanted.end))
            for piece in scan_places(
                reader, places, *where, batch_rows=BATCH_ROWS, layout=self._layout
            ):
                yield of_log(piece, self._origin, self._view)
                position = piece.end
        except CorruptionError as error:
            yield from self._moved(reader, position, error)

    def _moved(
        self, reader: ChunkReader, position: int, error: CorruptionError
    ) -> Iterator[pa.RecordBatch]:
        """Read the rest of the range from where it is now; report records that are gone."""
        wanted, log = self._wanted, open_log(self._options.url, read_only=True)
        losses = Losses(fail=self._options.fail_on_data_loss)
        try:
            topic = moved(log, self._index.topic_id, error)
        except NotFoundError:
            span = {wanted.partition: position}, {wanted.partition: wanted.end}
            losses.report_deleted(log.state, wanted.topic, self._origin.topic_id, *span)
            return
        left = TopicRanges.of(topic, [wanted.between(position, wanted.end)])
        history = history_of(log, log.state, self._options.archive)
        archived, rest = held([left], losses, history)
        yield from _of_archive(archived, self._view)
        for each in chain.from_iterable(rest):
            where = (topic, wanted.partition, (each.offsets.start, each.offsets.end))
            for piece in scan(log, reader, *where, batch_rows=BATCH_ROWS, layout=self._layout):
                yield of_log(piece, self._origin, self._view)


def _of_archive(ranges: Iterable[ArchivedRange], view: View) -> Iterator[pa.RecordBatch]:
    for each in small_parts(ranges):
        origin = Origin(each.topic, each.topic_id, each.partition)
        for batch in each.read(view.arrow):
            yield of_archive(batch, origin, view)
