"""Writing segments, and the commits that put them in place of what stood there.

- Only compaction leaves records out, and only a repair cuts some out; else all that stood there
  stand in the segment, at their offsets and in their order.
- The file is on disk before the commit that names it.
- The commit names the state that it was planned on. Binding refuses it when the partition was
  sealed, rewritten, trimmed or cut since; then the file goes, which nobody else knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.errors import ConflictError, CorruptionError, NotFoundError
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.format.layout import Layout
from kmq_storage.format.layout_entries import NO_TOMBSTONES, GapEntry, SegmentEntry
from kmq_storage.format.manifest import Row
from kmq_storage.format.queue_directory import DirectoryEncoder
from kmq_storage.format.records import (
    COMPACTED,
    RUN,
    sealed_batch,
    timestamp_bounds,
    tombstones_of,
    with_light_nulls,
)
from kmq_storage.format.segment import SealedBatch, SegmentEncoder, run_schema, segment_schema
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable, translated
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.run_index import RunIndex
from kmq_storage.log.scan import Slice, scan_places
from kmq_storage.log.topic_state import Topic
from kmq_storage.maintenance.runs import RunBatches, RunMerge, Sorted, sorted_records
from kmq_storage.model import Place
from kmq_storage.objects.files import Files

#: A batch with this share of the most rows is full enough: putting it together costs a copy.
_FULL_SHARE = 2


#: Where the records of a segment come from.
Records: TypeAlias = Iterable[Slice] | RunMerge


@dataclass(frozen=True, slots=True)
class Replacement:
    """Consecutive rows of a partition that one segment takes the place of."""

    topic: Topic
    partition: int
    rows: tuple[Row, ...]
    #: The LSN of the state this was planned on.
    lsn: int
    #: No offset below this is taken over; what a copy has already, for example.
    first: int = 0
    #: Nor this or any above, unless it is None.
    behind: int | None = None
    #: How the topic's records are read; it knows the versions of all that stands there.
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", self.topic.layout())

    @property
    def schema(self) -> pa.Schema:
        """The columns of the segment."""
        return self.layout.stored(self.layout.sealed_columns, self.topic.name)

    @property
    def columns(self) -> int:
        """What is said of them."""
        return self.layout.sealed_columns | (RUN if self.topic.settings.keyed else 0)

    @property
    def span(self) -> tuple[int, int]:
        """The offsets that are covered: first, and behind the last; none that were trimmed."""
        end = self.rows[-1].end_offset
        base = max(self.rows[0].base_offset, self._start)
        return base, end if self.behind is None else min(end, self.behind)

    @property
    def held(self) -> tuple[int, int]:
        """Rows and bytes of the records that stand there now."""
        held = [row.held_from(self._start) for row in self.rows]
        return sum(rows for rows, _ in held), sum(size for _, size in held)

    @property
    def is_whole(self) -> bool:
        """Whether all records of its rows are taken over."""
        return self.span == (self.rows[0].base_offset, self.rows[-1].end_offset)

    @property
    def _start(self) -> int:
        return max(self.topic.partition(self.partition).start, self.first)

    @property
    def most_batches(self) -> int:
        """More batches than its records can make: two neighbours together are never small."""
        rows = sum(row.rows for row in self.rows)
        # Many properties take more room in Arrow than in `size`; compressed, less than in Arrow.
        size = sum(max(row.weight, row.bytes) for row in self.rows)
        full = _FULL_SHARE * rows // limits.BATCH_ROWS_MAX + size // limits.STAGED_BATCH_BYTES
        return 2 * full + 4

    def merged(self, reader: ChunkReader) -> Records:
        """The records that stand there now, whole runs as such."""
        whole = self.rows[0].base_offset, self.rows[-1].end_offset
        if self.span == whole and all(row.in_run for row in self.rows):
            return RunMerge([RunIndex(reader, place) for place in self._places()], self.schema)
        return self.slices(reader)

    def _places(self) -> list[Place]:
        return [row.place((self.topic.id, self.partition)) for row in self.rows]

    def slices(self, reader: ChunkReader) -> Iterator[Slice]:
        """The records that stand there now, in the order of their offsets."""
        places = self._places()
        return scan_places(
            reader,
            places,
            self.topic.name,
            self.partition,
            self.span,
            batch_rows=limits.BATCH_ROWS_MAX,
            layout=self.layout,
        )


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compaction says of a segment."""

    #: As in `SegmentEntry`.
    tombstones: int

    def noted(self, entry: SegmentEntry) -> SegmentEntry:
        """The entry of a segment whose keys were compacted."""
        return replace(entry, columns=entry.columns | COMPACTED, tombstones=self.tombstones)


class Replacer:
    """Carries out replacements, in order; killed anywhere, it leaves a file nobody names."""

    def __init__(self, log: CommitLog) -> None:
        check_writable(log.files)
        self._log = log
        #: Own commits per partition: what is planned goes on from them.
        self._lsns: dict[tuple[bytes, int], int] = {}

    def replace(
        self,
        replaced: Replacement,
        records: Records,
        compacted: Compacted | None = None,
        gaps: Sequence[GapEntry] = (),
    ) -> SegmentEntry | None:
        """Have a segment of these records instead; None when the partition changed meanwhile.

        `gaps` are cut out in the same commit.
        """
        file_id = new_file_id(self._log.environment.new_uuid(), replaced.lsn)
        try:
            entry = write_segment(self._log.files, file_id, replaced, records)
        except CorruptionError as error:
            if error.context.get("missing") and self._is_outdated(replaced):
                return None  # who was faster collected the files, too
            raise
        if compacted is not None:
            entry = compacted.noted(entry)
        elif replaced.is_whole and not gaps:
            assert entry.rows == entry.old_rows, "no record is lost, or there twice"
        if self._commit(entry, gaps):
            return entry
        with suppress(OSError):  # nobody else knows of the file; what stays is collected later
            file = paths.segment_file(*_key(entry), entry.base_offset, entry.file_id)
            self._log.files.remove(file)
        return None

    def mark(self, segment: Replacement, compacted: Compacted) -> bool:
        """Note that a segment was compacted which stays as it is."""
        return self._commit(compacted.noted(_as_it_is(segment)), known=True)

    def cut_out(self, gaps: Sequence[GapEntry]) -> bool:
        """Give up ranges of one partition; False when it changed meanwhile."""
        return self._commit(gaps[-1], gaps[:-1])

    def _commit(
        self,
        entry: SegmentEntry | GapEntry,
        before: Sequence[GapEntry] = (),
        *,
        known: bool = False,
    ) -> bool:
        key = _key(entry)
        planned = max(self._lsns.get(key, 0), entry.planned_lsn)
        entries = (replace(each, planned_lsn=planned) for each in (*before, entry))
        try:
            self._lsns[key] = self._log.commit([Unit(tuple(entries), known=known)]).lsn
        except (ConflictError, NotFoundError):
            return False
        return True

    def _is_outdated(self, replaced: Replacement) -> bool:
        key = (replaced.topic.id, replaced.partition)
        topic = self._log.refresh().topic_by_id(key[0])
        planned = max(self._lsns.get(key, 0), replaced.lsn)
        return topic is None or topic.partition(key[1]).layout_lsn > planned


def _key(entry: SegmentEntry | GapEntry) -> tuple[bytes, int]:
    return entry.topic_id, entry.partition


def _as_it_is(segment: Replacement) -> SegmentEntry:
    (row,) = segment.rows
    return SegmentEntry(
        segment.topic.id,
        segment.partition,
        row.base_offset,
        row.end_offset,
        row.rows,
        row.file,
        row.position + row.length,
        row.position,
        row.checksum,
        row.columns,
        row.min_timestamp,
        row.max_timestamp,
        row.time,
        row.size,
        *segment.held,
        segment.lsn,
    )


def _batches(slices: Iterable[Slice], replaced: Replacement) -> Iterator[SealedBatch]:
    """Record batches of a useful size: neighbours that are small are put together."""
    rows, size = replaced.held
    per_row, before = size / max(rows, 1), 0
    for parts in _gathered(slices):
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
        if rows >= limits.BATCH_ROWS_MAX // _FULL_SHARE or size >= limits.STAGED_BATCH_BYTES:
            yield held
            held, rows, size = [], 0, 0
    if rows:
        yield held


def _sealed(parts: Sequence[Slice], size: int, schema: pa.Schema) -> SealedBatch:
    batches = [
        sealed_batch(part.batch, pa.array(np.asarray(part.offsets(), np.int64)), schema)
        for part in parts
    ]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    bounds = [timestamp_bounds(part.batch) for part in parts if part.batch.num_rows] or [(0, 0)]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    batch = with_light_nulls(batch)
    return SealedBatch(parts[0].offset, parts[-1].end, batch, low, high, size)


def tombstone_second(rows: Iterable[Row]) -> int:
    """The second (UTC) by which all tombstones in these rows were committed."""
    newest = max(row.time for row in rows)
    return min(max(-(-newest // 1_000_000), NO_TOMBSTONES + 1), 2**32 - 1)


class _Watched:
    """Slices on their way into a segment, and whether a tombstone was among them."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._slices = slices
        self.has_tombstones = False

    def __iter__(self) -> Iterator[Slice]:
        for part in self._slices:
            self.has_tombstones = self.has_tombstones or bool(len(tombstones_of(part.batch)))
            yield part


def _encoded(
    file_id: bytes, replaced: Replacement, records: Records
) -> tuple[Iterator[SealedBatch], SegmentEncoder]:
    """The record batches of a segment, and what makes bytes of them."""
    topic, (base, end) = replaced.topic, replaced.span
    schema = segment_schema(replaced.schema, topic.name, replaced.partition, base)
    settings = topic.settings
    if not settings.keyed:
        assert not isinstance(records, RunMerge), "only keyed topics have runs"
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
        directory=DirectoryEncoder(run.queues()),
    )


def _pieces(replaced: Replacement, records: Records) -> tuple[Iterator[Sorted], int]:
    """The records of a run in the order of their queues, and how many pieces they come in."""
    if isinstance(records, RunMerge):
        return records.pieces(), records.ranges
    return iter([sorted_records(records, replaced.schema)]), 1


def write_segment(
    files: Files, file_id: bytes, replaced: Replacement, records: Records
) -> SegmentEntry:
    """Write the file of a segment, on disk when this returns; nobody sees it before a commit."""
    topic, (base, end) = replaced.topic, replaced.span
    file = paths.segment_file(topic.id, replaced.partition, base, file_id)
    watched = records if isinstance(records, RunMerge) else _Watched(records)
    batches, encoder = _encoded(file_id, replaced, watched)
    with translated(files.url):
        files.stage(file, encoder.buffers(batches), sync=True)
    compacts = topic.settings.cleanup == "compact"
    waits = compacts and isinstance(watched, _Watched) and watched.has_tombstones
    return SegmentEntry(
        topic.id,
        replaced.partition,
        base,
        end,
        encoder.rows,
        file_id,
        encoder.length,
        encoder.footer_position,
        encoder.footer_checksum,
        replaced.columns,
        encoder.min_timestamp,
        encoder.max_timestamp,
        max(row.time for row in replaced.rows),
        encoder.size,
        *replaced.held,
        replaced.lsn,
        tombstone_second(replaced.rows) if waits else 0,
    )
