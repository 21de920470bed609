"""The offset index of a partition: from offsets to the rows that say where the records are.

Rows since the last checkpoint are in memory. Older rows are in the pages of the manifest. A row in
memory takes precedence, because it may replace older ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from typing import Any, TypeAlias

import numpy as np

from kmq_storage.cutting import outside
from kmq_storage.errors import CorruptionError, DataLossError
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.format.manifest import Key, Page, Row, Rows
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.row_table import Block, RowTable
from kmq_storage.model import LogDamage, Place

#: Selects rows by their kind, weight and flags: a bool for one row, a mask for many.
IsWanted: TypeAlias = Callable[[Row | Rows], Any]

#: Rows of a page are decoded in groups of this size, as a look at one offset needs few.
_ROWS_AT_ONCE = 64

#: Rows in memory are turned into columns in groups of this size.
_ROWS_IN_BLOCK = 4_096


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets whose records were in a damaged part of the log."""

    start: int
    end: int
    damage: LogDamage


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets whose records a repair gave up, or that a copy never had."""

    start: int
    end: int
    reason: str
    #: The messages of keyed queues among them (`format.lost_messages`); None if unknown.
    lost: bytes | None = None

    def entry(self, key: Key, planned_lsn: int) -> GapEntry:
        """The entry that gives up these offsets of a partition, which held no known records."""
        span, why = (self.start, self.end), (self.reason, self.lost)
        return GapEntry(*key, *span, 0, 0, planned_lsn, *why)


class OffsetIndex:
    """The rows, gaps and holes of one partition, for readers."""

    __slots__ = ("gaps", "holes", "key", "manifest", "recent")

    def __init__(self, key: Key, manifest: Manifest) -> None:
        self.key = key
        self.manifest = manifest
        self.recent = RowTable()
        self.holes: list[Hole] = []
        self.gaps: list[Gap] = []

    def append(self, row: Row) -> None:
        """Add the row of the newest records."""
        self.recent.append(row)

    def replace(self, row: Row) -> None:
        """Put a row in place of all rows with offsets in it, and of holes that it fills.

        The first replaced row may begin earlier, with trimmed records.
        """
        self.holes = [hole for hole in self.holes if not _is_inside(hole, row)]
        first = self.recent.first_behind(row.base_offset)
        base = self.recent.bases[first] if first < len(self.recent) else row.base_offset
        self.recent = self.recent.spliced(min(base, row.base_offset), row.end_offset, row)

    def drop_before(self, start: int) -> None:
        """Forget rows in memory, and gaps, that end at or before the new start."""
        self.gaps = [gap for gap in self.gaps if gap.end > start]
        first = self.recent.first_behind(start)
        if first:
            self.recent = self.recent.spliced(0, self.recent.ends[first - 1], None)

    def cut_out(self, gap: Gap) -> None:
        """Add a gap; its offsets have no records any more."""
        self.gaps.append(gap)
        self.holes = [h for h in self.holes if not (gap.start <= h.start and h.end <= gap.end)]
        behind = bisect_right(self.recent.ends, gap.end)
        end = self.recent.bases[behind - 1] + 1 if behind else 0
        if gap.start < end:  # a row that goes on behind the gap stays
            self.recent = self.recent.spliced(gap.start, min(gap.end, end), None)

    def fill(self, start: int, end: int) -> None:
        """Remove offsets [start, end) from a gap, as they have records after all.

        CorruptionError when there is no such gap: the offsets were then given out twice.
        """
        around = [gap for gap in self.gaps if gap.start <= start and end <= gap.end]
        if not around:
            raise CorruptionError(
                f"offsets {start} to {end - 1} of partition {self.key[1]} are given out twice; "
                "unless a repair gave up the first records the store must be put back from a copy",
                topic_id=self.key[0].hex(),
                partition=self.key[1],
                start=start,
                end=end,
            )
        self.gaps = [gap for gap in self.gaps if gap not in around]
        for gap in around:
            left = ((gap.start, start), (end, gap.end))
            parts = (replace(gap, start=low, end=high) for low, high in left)
            self.gaps += [part for part in parts if part.start < part.end]

    def newest_row(self, start: int, end: int) -> Row | None:
        """The newest row, if it has exactly these offsets, and there are no gaps and holes."""
        recent = self.recent
        if self.gaps or self.holes or not recent.bases:
            return None
        return recent.row(-1) if (recent.bases[-1], recent.ends[-1]) == (start, end) else None

    def recent_rows(self) -> list[Row]:
        """The rows in memory, which are in no checkpoint yet."""
        return [self.recent.row(index) for index in range(len(self.recent))]

    def rows(self, start: int, end: int) -> Iterator[Row]:
        """The rows that cover offsets in [start, end), in order."""
        for part in self._parts(start, end):
            if isinstance(part, Row):
                yield part
                continue
            page, low, high = part
            for first in range(low, high, _ROWS_AT_ONCE):
                yield from page.rows(first, min(first + _ROWS_AT_ONCE, high))

    def runs(self, start: int, end: int, wanted: IsWanted) -> Iterator[list[Row]]:
        """Runs of neighbouring rows that are wanted; unwanted rows in pages are not decoded.

        A run ends at a gap, and at a hole, which may become a gap. So no segment is written across
        lost offsets, and segments alone tell which offsets were lost.
        """
        gaps = sorted([gap.start for gap in self.gaps] + [hole.start for hole in self.holes])
        run: list[Row] = []
        for is_wanted, rows in self._sorted_out(start, end, wanted):
            if is_wanted:
                run += rows
            elif run:
                yield from _apart(run, gaps)
                run = []
        yield from _apart(run, gaps)

    def _sorted_out(
        self, start: int, end: int, wanted: IsWanted
    ) -> Iterator[tuple[bool, Sequence[Row]]]:
        for part in self._parts(start, end):
            if isinstance(part, Row):
                yield bool(wanted(part)), (part,)
                continue
            page, low, high = part
            mask = wanted(page)[low:high]
            borders = [0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), high - low]
            for first, behind in pairwise(borders):
                rows = page.rows(low + first, low + behind) if mask[first] else ()
                yield bool(mask[first]), rows

    def weight(self, start: int, end: int, wanted: IsWanted) -> int:
        """The total weight of the wanted rows that cover offsets in [start, end)."""
        total = 0
        for part in self._parts(start, end):
            if isinstance(part, Row):
                total += part.weight if wanted(part) else 0
            else:
                page, low, high = part
                total += int(page.weight[low:high][wanted(page)[low:high]].sum())
        return total

    def _parts(self, start: int, end: int) -> Iterator[Row | tuple[Page, int, int]]:
        """The rows that cover offsets in [start, end), in order; those in pages as index ranges."""
        recent, position = self.recent, start
        for index in range(recent.first_behind(start), len(recent)):
            base = recent.bases[index]
            if base >= end:
                break
            if position < base:
                yield from self._spans(position, base)
            yield recent.row(index)
            position = recent.ends[index]
        yield from self._spans(position, end)

    def _spans(
        self, start: int, end: int, *, since: int | None = None
    ) -> Iterator[tuple[Page, int, int]]:
        """Index ranges of rows in pages with offsets in [start, end) outside of all gaps."""
        reached = -1
        for low, high in self.outside_gaps(start, end):
            for page, first, behind in self.manifest.spans(self.key, low, high, since=since):
                base, row_end = page.bases[first], page.ends[first]
                first += int(base <= reached or row_end <= low)
                if first < behind:
                    reached = int(page.bases[behind - 1])
                    yield page, first, behind

    def between(self, start: int, end: int, limit: int | None = None) -> list[Place]:
        """The places of the records with offsets in [start, end), at most `limit` of them."""
        if start >= end:
            return []
        return [row.place(self.key) for row in islice(self.rows(start, end), limit)]

    def check(self, topic: str, start: int, end: int) -> None:
        """CorruptionError for a hole in [start, end), DataLossError for a gap."""
        where = {"topic": topic, "partition": self.key[1]}
        for gap in self.gaps:
            if gap.start < end and start < gap.end:
                raise DataLossError(
                    f"{topic}-{self.key[1]}: offsets {gap.start} to {gap.end - 1} were lost "
                    f"({gap.reason}); go on at offset {gap.end}",
                    **where,
                    start=gap.start,
                    end=gap.end,
                )
        for hole in self.holes:
            if hole.start < end and start < hole.end:
                raise CorruptionError(
                    f"{topic}-{self.key[1]}: offsets {hole.start} to {hole.end - 1} can't be "
                    f"read, their commit in {hole.damage.file} is damaged ({hole.damage.reason})",
                    file=hole.damage.file,
                    **where,
                    start=hole.start,
                    end=hole.end,
                )

    def gaps_between(self, start: int, end: int) -> list[Gap]:
        """The gaps that overlap [start, end), in order."""
        met = [gap for gap in self.gaps if gap.start < end and start < gap.end]
        return sorted(met, key=lambda gap: gap.start)

    def outside_gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) outside of gaps, in order."""
        met = self.gaps_between(start, end)  # few of thousands
        return outside(((gap.start, gap.end) for gap in met), start, end)

    def readable_until(self, start: int, end: int) -> int:
        """The start of the first gap or hole in (start, end), or else `end`."""
        begins = [gap.start for gap in self.gaps] + [hole.start for hole in self.holes]
        return min((begin for begin in begins if start < begin < end), default=end)

    def first_since(self, timestamp: int, start: int, end: int) -> Row | None:
        """The first row in [start, end) with a record whose timestamp is at or after this one.

        Timestamps are UTC us. Pages with only older records are not read.
        """
        recent, position = self.recent, start
        for index in range(recent.first_behind(start), len(recent)):
            found = self._older_since(timestamp, position, recent.bases[index])
            if found is not None:
                return found
            if recent.max_timestamps[index] >= timestamp:
                return recent.row(index)
            position = recent.ends[index]
        return self._older_since(timestamp, position, end)

    def _older_since(self, timestamp: int, start: int, end: int) -> Row | None:
        for page, low, high in self._spans(start, end, since=timestamp):
            reached = page.column("max_timestamp")[low:high] >= timestamp
            if reached.any():
                return page.row(low + int(np.argmax(reached)))
        return None

    def blocks(self, start: int, end: int) -> Iterator[Block]:
        """The rows that cover offsets in [start, end), in order, as columns of many at a time."""
        return map(block_of, self._tables(start, end))

    def _tables(self, start: int, end: int) -> Iterator[tuple[Rows, int, int]]:
        """The rows that cover offsets in [start, end), in order, as index ranges of tables."""
        recent, position = self.recent, start
        index = recent.first_behind(start)
        while index < len(recent) and recent.bases[index] < end:
            yield from self._spans(position, recent.bases[index])
            behind = recent.end_of_run(index, min(index + _ROWS_IN_BLOCK, len(recent)), end)
            yield recent.columns(index, behind), 0, behind - index
            position, index = recent.ends[behind - 1], behind
        yield from self._spans(position, end)

    def size_from(self, offset: int, end: int) -> int:
        """Bytes of records in [offset, end); a row that begins before counts in proportion."""
        total = 0
        for table, low, high in self._tables(offset, end):
            size, base, row_end = (
                int(column[low]) for column in (table.column("size"), table.bases, table.ends)
            )  # only its first row can be cut
            left = row_end - max(base, offset)
            rest = table.column("size")[low + 1 : high]
            total += size * left // (row_end - base) + int(rest.sum())
        return total

    def newer_spans(self) -> tuple[tuple[int, int], ...]:
        """The ranges [base, end) of offsets that rows in memory cover; neighbours are joined."""
        bases, ends = np.array(self.recent.bases), np.array(self.recent.ends)
        if not len(bases):
            return ()
        apart = np.flatnonzero(bases[1:] != ends[:-1])
        first, last = bases[[0, *(apart + 1)]], ends[[*apart, -1]]
        return tuple(zip(first.tolist(), last.tolist(), strict=True))

    def timestamp_of(self, offset: int) -> int | None:
        """The timestamp of the first record at or after this offset in the row that covers it.

        Rows have only their lowest and highest timestamp: inside of a row it is an estimate, as if
        the timestamps grew evenly.
        """
        row = next(self.rows(offset, offset + 1), None)
        if row is None:
            return None
        steps = max(row.end_offset - row.base_offset - 1, 1)
        passed = max(offset - row.base_offset, 0)
        span = max(row.max_timestamp - row.min_timestamp, 0)
        return row.min_timestamp + span * passed // steps


def _is_inside(hole: Hole, row: Row) -> bool:
    """Whether a row fills a hole completely; no segment is written across a hole's border."""
    return row.base_offset <= hole.start and hole.end <= row.end_offset


def _apart(run: list[Row], borders: Sequence[int]) -> Iterator[list[Row]]:
    """A run of rows, cut at each border between two rows."""
    if not borders:
        yield from [run] if run else ()
        return
    for _, rows in groupby(run, lambda row: bisect_right(borders, row.base_offset)):
        yield list(rows)


def block_of(part: tuple[Rows, int, int]) -> Block:
    """Some rows of a table as columns of numbers."""
    rows, span = part[0], slice(*part[1:])
    return rows.bases[span], rows.ends[span], rows.weight[span], rows.bytes[span]
