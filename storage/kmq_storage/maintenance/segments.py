"""Writing segments, and the commits that put them in place of what stood there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from kmq_storage import limits, paths
from kmq_storage.errors import ConflictError
from kmq_storage.format.layout import Layout
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.format.manifest import Row
from kmq_storage.format.records import sealed_batch, timestamp_bounds
from kmq_storage.format.segment import SealedBatch, SegmentEncoder, segment_schema
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reader import ChunkReader
from kmq_storage.log.scan import Slice, scan_places
from kmq_storage.log.topic_state import Topic

#: A batch with this share of the most rows is full enough: putting it together costs a copy.
_FULL_SHARE = 4

#: What a record takes in memory beside its key, value, headers and properties, at most.
_ROW_BYTES = 64


@dataclass(frozen=True, slots=True)
class Replacement:
    """Consecutive rows of a partition that one segment takes the place of."""

    topic: Topic
    partition: int
    rows: tuple[Row, ...]
    #: The LSN of the state this was planned on.
    lsn: int
    #: How the topic's records are read; it knows the versions of all that stands there.
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", self.topic.layout())

    @property
    def schema(self) -> pa.Schema:
        """The columns of the segment."""
        return self.layout.stored(self.layout.sealed_columns, self.topic.name)

    @property
    def span(self) -> tuple[int, int]:
        """The offsets that are covered: first, and behind the last."""
        return self.rows[0].base_offset, self.rows[-1].end_offset

    @property
    def bytes_per_row(self) -> float:
        """Bytes of keys, values, headers and properties of a record, on average."""
        return sum(row.size for row in self.rows) / max(sum(row.rows for row in self.rows), 1)

    @property
    def most_batches(self) -> int:
        """More batches than its records can make: two neighbours together are never small."""
        rows = sum(row.rows for row in self.rows)
        size = sum(row.size for row in self.rows) + _ROW_BYTES * rows
        return (
            2 * (_FULL_SHARE * rows // limits.BATCH_ROWS_MAX + size // limits.STAGED_BATCH_BYTES)
            + 4
        )

    def slices(self, reader: ChunkReader) -> Iterator[Slice]:
        """The records that stand there now."""
        places = [row.place((self.topic.id, self.partition)) for row in self.rows]
        return scan_places(
            reader,
            places,
            self.topic.name,
            self.partition,
            self.span,
            batch_rows=limits.BATCH_ROWS_MAX,
            layout=self.layout,
        )


class Replacer:
    """Carries out replacements, in order; killed anywhere, it leaves a file nobody names."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        #: Own commits per partition: what is planned goes on from them.
        self._lsns: dict[tuple[bytes, int], int] = {}

    def replace(
        self, replaced: Replacement, slices: Iterable[Slice], mark: int = 0
    ) -> SegmentEntry | None:
        """Have a segment of these records instead; None when the partition changed meanwhile.

        `mark` is COMPACTED, or 0.
        """
        entry = _write(self._log, replaced, _batches(slices, replaced))
        entry = replace(entry, columns=entry.columns | mark)
        if self._commit(entry):
            return entry
        # Nobody else knows of the file.
        self._log.disk.remove(paths.segment_file(*_key(entry), entry.base_offset, entry.file_id))
        return None

    def mark(self, segment: Replacement, mark: int) -> bool:
        """Note a mark at a segment that stays as it is."""
        return self._commit(_marked(segment, mark))

    def _commit(self, entry: SegmentEntry) -> bool:
        key = _key(entry)
        entry = replace(entry, planned_lsn=max(self._lsns.get(key, 0), entry.planned_lsn))
        try:
            self._lsns[key] = self._log.commit([Unit((entry,))]).lsn
        except ConflictError:
            return False
        return True


def _key(entry: SegmentEntry) -> tuple[bytes, int]:
    return entry.topic_id, entry.partition


def _marked(segment: Replacement, mark: int) -> SegmentEntry:
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
        row.columns | mark,
        row.min_timestamp,
        row.max_timestamp,
        row.time,
        row.size,
        row.rows,
        row.size,
        segment.lsn,
    )


def _batches(slices: Iterable[Slice], replaced: Replacement) -> Iterator[SealedBatch]:
    """Record batches of a useful size: neighbours that are small are put together."""
    held: list[Slice] = []
    rows = size = 0
    for part in slices:
        if held and rows + part.batch.num_rows > limits.BATCH_ROWS_MAX:
            yield _sealed(held, replaced)
            held, rows, size = [], 0, 0
        held.append(part)
        rows, size = rows + part.batch.num_rows, size + part.batch.nbytes
        if rows >= limits.BATCH_ROWS_MAX // _FULL_SHARE or size >= limits.STAGED_BATCH_BYTES:
            yield _sealed(held, replaced)
            held, rows, size = [], 0, 0
    if held and rows:
        yield _sealed(held, replaced)


def _sealed(parts: Sequence[Slice], replaced: Replacement) -> SealedBatch:
    schema = replaced.schema
    batches = [
        sealed_batch(part.batch, pa.array(np.asarray(part.offsets(), np.int64)), schema)
        for part in parts
    ]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    bounds = [timestamp_bounds(part.batch) for part in parts if part.batch.num_rows] or [(0, 0)]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    size = round(replaced.bytes_per_row * batch.num_rows)
    return SealedBatch(parts[0].offset, parts[-1].end, batch, low, high, size)


def _write(log: CommitLog, replaced: Replacement, batches: Iterable[SealedBatch]) -> SegmentEntry:
    """Write the file of a segment, on disk when this returns; nobody sees it before a commit."""
    file_id = log.environment.new_uuid().bytes
    topic, (base, end) = replaced.topic, replaced.span
    encoder = SegmentEncoder(
        segment_schema(replaced.schema, topic.name, replaced.partition, base),
        file_id,
        most=replaced.most_batches,
        compression=topic.settings.compression,
    )
    file = paths.segment_file(topic.id, replaced.partition, base, file_id)
    log.disk.stage(file, encoder.buffers(batches), sync=True)
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
        replaced.layout.sealed_columns,
        encoder.min_timestamp,
        encoder.max_timestamp,
        max(row.time for row in replaced.rows),
        encoder.size,
        sum(row.rows for row in replaced.rows),
        sum(row.size for row in replaced.rows),
        replaced.lsn,
    )
