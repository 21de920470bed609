"""Planned replacements of rows by a segment, for sealing, compaction and repair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from kmq_storage import limits
from kmq_storage.format.layout import Layout
from kmq_storage.format.manifest import Row
from kmq_storage.format.records import RUN
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.run_index import RunIndex
from kmq_storage.log.reading.scan import Slice, scan_places
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.runs import RunMerge, SortedRecords
from kmq_storage.model import Place

#: A batch with 1/2 of the most rows is full enough, since joining batches costs a copy.
FULL_SHARE = 2

#: Where the records of a segment come from.
Records: TypeAlias = Iterable[Slice] | SortedRecords


@dataclass(frozen=True, slots=True)
class Replacement:
    """Consecutive rows of a partition that one segment will replace."""

    topic: Topic
    partition: int
    rows: tuple[Row, ...]
    #: The LSN of the state this was planned on.
    lsn: int
    #: Records below this offset are left out, for example because a copy has them already.
    first: int = 0
    #: Records from this offset on are left out, unless it is None.
    behind: int | None = None
    #: Ends of keyed queues that were committed before this (UTC us) are dropped, if the rows are
    #: the first of their partition.
    ends_before: int = 0
    #: The number of gaps of lost records inside, each of which ends a batch.
    gaps: int = 0
    #: How the topic's records are read; it knows all schema versions of the rows.
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", self.topic.layout())

    @property
    def schema(self) -> pa.Schema:
        """The columns of the segment."""
        return self.layout.stored(self.layout.sealed_columns, self.topic.name)

    @property
    def columns(self) -> int:
        """The columns of the segment as flags (`format.records`)."""
        return self.layout.sealed_columns | (RUN if self.topic.settings.keyed else 0)

    @property
    def span(self) -> tuple[int, int]:
        """The offsets [start, end) that the segment covers, without trimmed ones."""
        end = self.rows[-1].end_offset
        base = max(self.rows[0].base_offset, self._start)
        return base, end if self.behind is None else min(end, self.behind)

    @property
    def held(self) -> tuple[int, int]:
        """The number and bytes of the records that are replaced."""
        held = [row.held_from(self._start) for row in self.rows]
        return sum(rows for rows, _ in held), sum(size for _, size in held)

    @property
    def is_whole(self) -> bool:
        """Whether the segment covers all offsets of its rows."""
        return self.span == (self.rows[0].base_offset, self.rows[-1].end_offset)

    @property
    def _start(self) -> int:
        return max(self.topic.partition(self.partition).start, self.first)

    @property
    def most_batches(self) -> int:
        """An upper bound for the number of batches: two neighbours together are never small."""
        rows = sum(row.rows for row in self.rows)
        # Many properties take more bytes in Arrow than in `size`; compressed batches take fewer.
        size = sum(max(row.weight, row.bytes) for row in self.rows)
        full = FULL_SHARE * rows // limits.BATCH_ROWS_MAX + size // limits.STAGED_BATCH_BYTES
        return 2 * full + 4 + 2 * self.gaps

    def merged(self, reader: ChunkReader) -> Records:
        """The records that are replaced; if all rows are whole runs, as a merge of runs."""
        whole = self.rows[0].base_offset, self.rows[-1].end_offset
        if self.span == whole and all(row.in_run for row in self.rows):
            runs = [RunIndex(reader, place, self.topic.name) for place in self._places()]
            return RunMerge(runs, self.schema, self._forgotten)
        return self.slices(reader)

    @property
    def _forgotten(self) -> int:
        """The number of first runs whose ends of queues may be dropped."""
        begins = self.rows[0].base_offset <= self._start
        return sum(row.time < self.ends_before for row in self.rows) if begins else 0

    def _places(self) -> list[Place]:
        return [row.place((self.topic.id, self.partition)) for row in self.rows]

    def slices(self, reader: ChunkReader) -> Iterator[Slice]:
        """The records that are replaced, in the order of their offsets."""
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
