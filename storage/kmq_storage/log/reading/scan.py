"""Scanning a partition: its records from an offset on, in slices of a useful size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Numbers
from kmq_storage.errors import CorruptionError, KmqError, NotFoundError
from kmq_storage.format.joining import columns_of_all, joined
from kmq_storage.format.layout import UNTYPED, Layout
from kmq_storage.format.plain_columns import number_column
from kmq_storage.format.records import offset_of_row, offsets_of, with_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import moved_file
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Chunk, Place, Segment

#: Chunks with less than 1/4 of the rows of a batch are joined; larger ones stay mapped.
_SMALL_SHARE = 4
#: The most bytes of chunks that are joined.
_JOINED_BYTES = 8 << 20
_PLACES_AT_ONCE = 256
#: How many places are announced to the reader ahead of time.
_AHEAD = 16
#: How many chunks are verified ahead of time.
_PROVEN_AHEAD = 4

P = TypeVar("P", Chunk, Segment, Place)


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one partition, in the stored columns.

    Where compaction removed records, there is an `offset` column, too, and the slice may be empty.
    """

    #: None for a queue's own log.
    topic: str | None
    partition: int
    #: The first offset that is covered; without gaps, that of the first row.
    offset: int
    batch: pa.RecordBatch
    #: The offset after the last one that is covered: where reading goes on.
    end: int
    #: The layout of its columns, for readers of a typed topic.
    layout: Layout = UNTYPED

    @property
    def rows(self) -> int:
        """The number of records."""
        return int(self.batch.num_rows)

    @property
    def size(self) -> int:
        """The bytes of its columns."""
        return int(self.batch.nbytes)

    def offset_of(self, row: int) -> int:
        """The offset of a row; for the row after the last, the offset where reading goes on."""
        if row >= self.rows:
            return self.end
        return offset_of_row(self.batch, self.offset, row)

    def offsets(self) -> Numbers:
        """The offset of each row."""
        offsets = offsets_of(self.batch)
        if offsets is None:
            return np.arange(self.offset, self.offset + self.batch.num_rows)
        return np.asarray(np.from_dlpack(offsets), np.int64)

    def offset_column(self) -> pa.Array:
        """The offset of each row, as a column."""
        offsets = offsets_of(self.batch)
        return number_column(self.offsets()) if offsets is None else offsets

    def as_slice(self) -> Slice:
        """This slice, for callers that take other kinds of batches, too."""
        return self

    def taken(self, rows: Numbers) -> Slice:
        """A copy of some of its records."""
        batch = self.batch
        if offsets_of(batch) is None:
            batch = with_offsets(batch, self.offset_column())
        return replace(self, batch=batch.take(number_column(rows)))

    def cut(self, rows: int) -> tuple[Slice, Slice]:
        """The first rows, and the rest."""
        at = self.offset_of(rows)
        first = replace(self, batch=self.batch.slice(0, rows), end=at)
        return first, replace(self, batch=self.batch.slice(rows), offset=at)


def scan(
    log: CommitLog,
    reader: ChunkReader,
    topic: Topic,
    partition: int,
    span: tuple[int, int],
    *,
    batch_rows: int,
    layout: Layout | None = None,
    having: int = 0,
) -> Iterator[Slice]:
    """The records with offsets in `span`, [start, end), in slices of at most `batch_rows` rows.

    They have the topic's current columns, or those of a `layout`. Places without one of the columns
    `having` (flags of `format.records`) are skipped. When maintenance moved records to other files
    meanwhile, they are looked up again.

    - **OffsetOutOfRangeError** below the partition's start.
    - **CorruptionError** for damaged bytes, after all records before them.
    - **DataLossError** for a gap, after all records before it.
    - **NotFoundError** when the topic is deleted meanwhile.
    """
    start, end = span
    layout = layout or topic.layout()
    missing = None
    while start < end:
        until = topic.index(partition).readable_until(start, end)
        reader.goes_on = until < end
        try:
            places = topic.places(partition, start, until, _PLACES_AT_ONCE)
            layout = layout.knowing(topic.layout())
            for part in scan_places(
                reader,
                [place for place in places if place.columns & having == having],
                topic.name,
                partition,
                (start, until),
                batch_rows=batch_rows,
                layout=layout,
            ):
                yield part
                start = part.end
        except CorruptionError as error:
            if "queues" in error.context:
                from kmq_storage.log.reading.damaged_runs import with_indexes  # only when needed

                raise with_indexes(log, reader.told, topic, error) from error
            topic = moved(log, topic.id, error)
            if moved_file(error) == missing:
                raise
            missing = moved_file(error)
        else:
            start = min(places[-1].end_offset, until) if places else until


def moved(log: CommitLog, topic_id: bytes, error: CorruptionError) -> Topic:
    """The current topic after `error` for a missing file, whose records may have been moved.

    Any other error is raised again. NotFoundError when the topic was deleted.
    """
    if moved_file(error) is None:
        raise error
    topic = log.reload().topic_by_id(topic_id)
    if topic is None:
        raise NotFoundError(
            f"the topic was deleted while it was read: {error.message}", **error.context
        ) from error
    return topic


def scan_places(
    reader: ChunkReader,
    places: Sequence[Place],
    topic: str,
    partition: int,
    span: tuple[int, int],
    *,
    batch_rows: int,
    layout: Layout,
) -> Iterator[Slice]:
    """The records at these places with offsets in [start, end), in slices as `scan` returns them.

    An error, of damage or of an unreachable file, is raised after all records before it.
    """
    small: list[Slice] = []
    small_bytes = 0
    slices = _slices(reader, places, topic, partition, span, layout=layout)
    while (part := _next_or_error(slices)) is not None:
        if isinstance(part, Exception):
            if small:
                yield _joined(small)
            raise part
        rows = part.batch.num_rows
        dense = rows == part.end - part.offset and offsets_of(part.batch) is None
        follows = not small or small[-1].end == part.offset
        size = part.batch.nbytes if dense and rows * _SMALL_SHARE <= batch_rows else _JOINED_BYTES
        fits = size < _JOINED_BYTES
        full = bool(small) and part.end - small[0].offset > batch_rows
        if small and (full or not fits or not follows or small_bytes + size > _JOINED_BYTES):
            yield _joined(small)
            small, small_bytes = [], 0
        if fits:
            small.append(part)
            small_bytes += size
        else:
            yield from _pieces(part, batch_rows)
    if small:
        yield _joined(small)


def _next_or_error(slices: Iterator[Slice]) -> Slice | Exception | None:
    try:
        return next(slices, None)
    except Exception as error:
        return error


def _slices(
    reader: ChunkReader,
    places: Sequence[Place],
    topic: str,
    partition: int,
    span: tuple[int, int],
    *,
    layout: Layout,
) -> Iterator[Slice]:
    start, end = span
    covered = start
    for step in _proven(reader, _steps(reader, places, span, layout, (topic, partition)), layout):
        behind = min(step.end_offset, end)
        first = max(covered, step.base_offset)
        if isinstance(step, Chunk):
            read = partial(reader.read, step, topic=topic, partition=partition, layout=layout)
            try:
                batch = read(start, end)
            except CorruptionError as error:
                whole = error.context.get("start", first)
                if first < whole:  # a damaged batch of a run has some of the later records
                    yield Slice(topic, partition, first, read(first, whole), whole, layout)
                raise
            yield Slice(topic, partition, first, batch, behind, layout)
        elif first < behind:  # compaction dropped the last records of the segment
            yield Slice(topic, partition, first, layout.empty(), behind, layout)
        covered = behind


def _steps(
    reader: ChunkReader,
    places: Sequence[Place],
    span: tuple[int, int],
    layout: Layout,
    partition: tuple[str, int],
) -> Iterator[Place]:
    """The chunks to read; behind those of a segment, the segment itself."""
    start, end = span
    for place in _announced(reader, places, layout):
        chunks = reader.chunks(place, *partition)
        wanted = [c for c in chunks if c.base_offset < end and start < c.end_offset]
        yield from _announced(reader, wanted, layout)
        if not isinstance(place, Chunk):
            yield place


def _announced(reader: ChunkReader, places: Sequence[P], layout: Layout) -> Iterator[P]:
    """The places; the next ones are announced to the reader ahead of time."""
    announce_at = 0
    for index, place in enumerate(places):
        if index == announce_at and len(places) > 1:
            fetches = reader.prefetch(places[index : index + _AHEAD], layout)
            announce_at = index + (1 if fetches else _AHEAD // 2)
        yield place


def _proven(reader: ChunkReader, steps: Iterator[Place], layout: Layout) -> Iterator[Place]:
    """The same steps; meanwhile, other threads verify the checksums of the next ones."""
    coming: deque[Place] = deque()
    try:
        for step in steps:
            if coming and isinstance(step, Chunk):
                reader.prove_ahead(step, layout)
            coming.append(step)
            if len(coming) > _PROVEN_AHEAD:
                yield coming.popleft()
    except KmqError:
        yield from coming
        raise
    else:
        yield from coming
    finally:
        reader.forget_proofs()


def _joined(parts: Sequence[Slice]) -> Slice:
    batches = [part.batch for part in parts]
    batch = joined(batches, columns_of_all(batches))
    return replace(parts[0], batch=batch, end=parts[-1].end)


def _pieces(part: Slice, rows: int) -> Iterator[Slice]:
    while part.batch.num_rows > rows:
        first, part = part.cut(rows)
        yield first
    yield part
