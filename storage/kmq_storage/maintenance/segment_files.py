"""Writing the file of a segment, which no reader knows before a commit names it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.format.checksum import Bytes
from kmq_storage.format.layout_entries import NO_TOMBSTONES, SegmentEntry
from kmq_storage.format.manifest import Row
from kmq_storage.format.queue_directory import DirectoryEncoder
from kmq_storage.format.records import (
    sealed_batch,
    timestamp_bounds,
    tombstones_of,
    with_light_nulls,
)
from kmq_storage.format.segment import SealedBatch, SegmentEncoder, run_schema, segment_schema
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.reading.scan import Slice
from kmq_storage.maintenance.replacement import FULL_SHARE, Records, Replacement
from kmq_storage.maintenance.runs import (
    RunBatches,
    Sorted,
    SortedRecords,
    batch_rows,
    piece_rows,
    sorted_records,
)
from kmq_storage.objects.allocators import give_back
from kmq_storage.objects.files import Files

#: What to write a segment from: the id of its file, the rows that it replaces, and its records.
NewSegment: TypeAlias = tuple[bytes, Replacement, Records]


def write_segment(
    files: Files,
    file_id: bytes,
    replaced: Replacement,
    records: Records,
    *,
    check: Callable[[], None] = lambda: None,
) -> SegmentEntry:
    """Write and sync the file of a segment; returns the entry for its commit.

    `check` is called before each piece; if it raises, there is no file.
    """
    return write_segments(files, [(file_id, replaced, records)], check=check)[0]


def write_segments(
    files: Files, new: Iterable[NewSegment], *, check: Callable[[], None] = lambda: None
) -> list[SegmentEntry]:
    """As `write_segment`, for several files that are synced together; all are there, or none."""
    begun = [_Begun(*each) for each in new]
    with translated(files.url):
        files.stage_together([(each.file, _checked(each.buffers(), check)) for each in begun])
    if any(each.replaced.topic.settings.keyed for each in begun):
        give_back()  # free the memory in which runs were sorted
    return [each.entry() for each in begun]


class _Begun:
    """A segment that is being written."""

    def __init__(self, file_id: bytes, replaced: Replacement, records: Records) -> None:
        self.replaced = replaced
        base, _ = replaced.span
        self.file = paths.segment_file(replaced.topic.id, replaced.partition, base, file_id)
        self._file_id = file_id
        self._records = records if isinstance(records, SortedRecords) else _Watched(records)
        self._batches, self._encoder = _encoded(file_id, replaced, self._records)

    def buffers(self) -> Iterable[Bytes]:
        """The bytes of the file."""
        return self._encoder.buffers(self._batches)

    def entry(self) -> SegmentEntry:
        """The entry for its commit, once the file is written."""
        waits = isinstance(self._records, _Watched) and self._records.has_tombstones
        return _entry(self._file_id, self.replaced, self._encoder, tombstones=waits)


def _entry(
    file_id: bytes, replaced: Replacement, encoder: SegmentEncoder, *, tombstones: bool
) -> SegmentEntry:
    topic, (base, end) = replaced.topic, replaced.span
    old_rows, old_size = replaced.held
    waits = tombstones and topic.settings.cleanup == "compact"
    return SegmentEntry(
        topic_id=topic.id,
        partition=replaced.partition,
        base_offset=base,
        end_offset=end,
        rows=encoder.rows,
        file_id=file_id,
        length=encoder.length,
        footer_position=encoder.footer_position,
        footer_checksum=encoder.footer_checksum,
        columns=replaced.columns,
        min_timestamp=encoder.min_timestamp,
        max_timestamp=encoder.max_timestamp,
        time=max(row.time for row in replaced.rows),
        size=encoder.size,
        old_rows=old_rows,
        old_size=old_size,
        planned_lsn=replaced.lsn,
        tombstones=tombstone_second(replaced.rows) if waits else 0,
    )


def _checked(pieces: Iterable[Bytes], check: Callable[[], None]) -> Iterator[Bytes]:
    for piece in pieces:
        check()
        yield piece


def _encoded(
    file_id: bytes, replaced: Replacement, records: Records
) -> tuple[Iterator[SealedBatch], SegmentEncoder]:
    """The record batches of a segment, and the encoder for them."""
    topic, (base, end) = replaced.topic, replaced.span
    schema = segment_schema(replaced.schema, topic.name, replaced.partition, base)
    settings = topic.settings
    if not settings.keyed:
        assert not isinstance(records, SortedRecords), "only keyed topics have runs"
        return _batches(records, replaced), SegmentEncoder(
            schema,
            file_id,
            most=replaced.most_batches,
            compression=settings.compression,
            schemas=settings.schemas,
        )
    pieces, count = _pieces(replaced, records)
    run = RunBatches(replaced.rows, count)
    return run.sealed(base, pieces), SegmentEncoder(
        run_schema(schema, end),
        file_id,
        most=run.most,
        compression=settings.compression,
        directory=DirectoryEncoder(run.queues(), run.beginnings),
    )


def _pieces(replaced: Replacement, records: Records) -> tuple[Iterator[Sorted], int]:
    """The records of a run, sorted by queue, and the number of their pieces."""
    if isinstance(records, SortedRecords):
        return records.pieces(), records.ranges
    rows, size = replaced.held
    most = min(limits.SORTED_ROWS, piece_rows(rows, size))
    step = batch_rows(replaced.rows)
    most = max(most // step, 1) * step
    return sorted_records(records, replaced.schema, most), rows // most + 2


class _Watched:
    """Passes slices on, and notes whether there was a tombstone among them."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._slices = slices
        self.has_tombstones = False

    def __iter__(self) -> Iterator[Slice]:
        for part in self._slices:
            self.has_tombstones = self.has_tombstones or bool(len(tombstones_of(part.batch)))
            yield part


def tombstone_second(rows: Iterable[Row]) -> int:
    """The second (UTC) by which all tombstones in these rows were committed."""
    newest = max(row.time for row in rows)
    return min(max(-(-newest // 1_000_000), NO_TOMBSTONES + 1), 2**32 - 1)


def _batches(slices: Iterable[Slice], replaced: Replacement) -> Iterator[SealedBatch]:
    """Record batches of a useful size; small neighbours are joined."""
    rows, size = replaced.held
    per_row, before = size / max(rows, 1), 0
    gathered = _gathered(slices)
    for parts in chain.from_iterable(map(_apart, gathered)) if replaced.gaps else gathered:
        behind = before + sum(part.batch.num_rows for part in parts)
        size = round(per_row * behind) - round(per_row * before)
        yield _sealed(parts, size, replaced.schema)
        before = behind


def _gathered(slices: Iterable[Slice]) -> Iterator[list[Slice]]:
    held: list[Slice] = []
    rows = size = 0
    for part in slices:
        if held and rows + part.batch.num_rows > limits.BATCH_ROWS_MAX:
            yield held
            held, rows, size = [], 0, 0
        held.append(part)
        rows, size = rows + part.batch.num_rows, size + part.batch.nbytes
        if rows >= limits.BATCH_ROWS_MAX // FULL_SHARE or size >= limits.STAGED_BATCH_BYTES:
            yield held
            held, rows, size = [], 0, 0
    if rows:
        yield held


def _apart(parts: Sequence[Slice]) -> Iterator[Sequence[Slice]]:
    """Slices cut at lost records, which no batch may cover.

    Readers can so tell lost records from those that compaction dropped.
    """
    first = 0
    for at in range(1, len(parts)):
        if parts[at].offset > parts[at - 1].end:
            yield parts[first:at]
            first = at
    yield parts[first:]


def _sealed(parts: Sequence[Slice], size: int, schema: pa.Schema) -> SealedBatch:
    batches = [sealed_batch(part.batch, part.offset_column(), schema) for part in parts]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    bounds = [timestamp_bounds(part.batch) for part in parts if part.batch.num_rows] or [(0, 0)]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    batch = with_light_nulls(batch)
    return SealedBatch(parts[0].offset, parts[-1].end, batch, low, high, size)
