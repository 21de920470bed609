"""Rows of the manifest that are not in a checkpoint yet: columns of numbers, some 100 bytes a row.

Appended to by one thread and read by others: the column of base offsets is appended to last, and
readers see only rows that it has. Whatever else changes makes a new table.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kmq_storage.format.manifest import SEGMENT, Row, weight_in_memory

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers: TypeAlias = npt.NDArray[np.int64]

#: How far some bytes reach: an offset, and the bytes up to there.
Reach: TypeAlias = tuple[int, int]

#: Of some rows: base offsets, end offsets, weights, and bytes to read.
Block: TypeAlias = "tuple[_Numbers, _Numbers, _Numbers, _Numbers]"


class RowTable:
    """Rows of one partition in offset order; they don't overlap."""

    def __init__(self) -> None:
        self.bases = array("Q")
        self.ends = array("Q")
        self._rows = array("Q")
        self._kinds = array("B")
        self._files: list[bytes] = []
        self._positions = array("Q")
        self._lengths = array("Q")
        self._checksums = array("I")
        self._columns = array("H")
        self._lows = array("q")
        self.max_timestamps = array("q")
        self._times = array("q")
        self._sizes = array("Q")

    def __len__(self) -> int:
        return len(self.bases)

    def append(self, row: Row) -> None:
        """Add the next row."""
        self.ends.append(row.end_offset)
        self._rows.append(row.rows)
        self._kinds.append(row.kind)
        self._files.append(row.file)
        self._positions.append(row.position)
        self._lengths.append(row.length)
        self._checksums.append(row.checksum)
        self._columns.append(row.columns)
        self._lows.append(row.min_timestamp)
        self.max_timestamps.append(row.max_timestamp)
        self._times.append(row.time)
        self._sizes.append(row.size)
        self.bases.append(row.base_offset)

    def row(self, index: int) -> Row:
        """The row at this place in offset order."""
        return Row(
            self.bases[index],
            self.ends[index],
            self._rows[index],
            self._kinds[index],
            self._files[index],
            self._positions[index],
            self._lengths[index],
            self._checksums[index],
            self._columns[index],
            self._lows[index],
            self.max_timestamps[index],
            self._times[index],
            self._sizes[index],
        )

    def first_behind(self, offset: int) -> int:
        """The index of the first row that covers this offset or later ones."""
        index = max(bisect_right(self.bases, offset) - 1, 0)
        return index + 1 if index < len(self) and self.ends[index] <= offset else index

    def end_of_run(self, first: int, limit: int, end: int) -> int:
        """The index, at most `limit`, of the next row behind a hole or an offset."""
        for index in range(first + 1, limit):
            if self.bases[index] != self.ends[index - 1] or self.bases[index] >= end:
                return index
        return limit

    def block(self, first: int, behind: int) -> Block:
        """Some rows as columns of numbers, copied: the table grows meanwhile."""
        columns = (self.bases, self.ends, self._rows, self._sizes, self._lengths)
        part = slice(first, behind)
        bases, ends, rows, sizes, lengths = (np.array(c[part], dtype=np.int64) for c in columns)
        segments = np.array(self._kinds[part]) == SEGMENT
        read = lengths + np.array(self._positions[part], dtype=np.int64) * segments
        return bases, ends, weight_in_memory(sizes, rows), read

    def within(self, first: int, behind: int, span: tuple[int, int], budget: int) -> Reach | None:
        """`OffsetIndex.within` over a few rows that follow each other; None if they are too few."""
        start, end = span
        if self.bases[first] > start or self.ends[behind - 1] < end:
            return None
        used = 0
        for index in range(first, behind):
            base, row_end = self.bases[index], self.ends[index]
            low, high = max(base, start), min(row_end, end)
            weight = weight_in_memory(self._sizes[index], self._rows[index])
            weight = weight * (high - low) // (row_end - base)
            if used + weight > budget:
                more = (budget - used) * (high - low) // weight
                return low + more, used + weight * more // (high - low)
            used += weight
        return end, used

    def spliced(self, start: int, end: int, row: Row | None) -> RowTable:
        """A table with this row, or none, in place of all with a base offset in [start, end)."""
        low, high = bisect_left(self.bases, start), bisect_left(self.bases, end)
        table = RowTable()
        for index in range(low):
            table.append(self.row(index))
        if row is not None:
            table.append(row)
        for index in range(high, len(self)):
            table.append(self.row(index))
        return table
