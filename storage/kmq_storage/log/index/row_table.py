"""Tables of the manifest's rows that are not in a checkpoint yet, packed in about 120 bytes each.

One thread appends rows, and others read meanwhile. The base offset is appended last, and readers
see only rows that have one. Any other change makes a new table.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from kmq_storage.arrays import Array, Numbers
from kmq_storage.format.manifest import Row, Rows, RowValues, row_values

#: Columns of some rows: base offsets, end offsets, weights, and bytes to read.
Block: TypeAlias = "tuple[Numbers, Numbers, Numbers, Numbers]"

#: The layout of a packed row, for `struct` and for numpy.
_PACKED = struct.Struct("<qqqB16sqqIHqqqq")
_FORMATS = (*("<i8",) * 3, "u1", "V16", "<i8", "<i8", "<u4", "<u2", *("<i8",) * 4)
_COLUMNS = np.dtype(list(zip(Row.__slots__, _FORMATS, strict=True)))

_BASE, _END, _MAX_TIMESTAMP = map(
    Row.__slots__.index, ("base_offset", "end_offset", "max_timestamp")
)

#: The bytes of a packed row.
ROW_BYTES = _PACKED.size


class RowTable:
    """Rows of one partition, in the order of offsets and without overlaps."""

    __slots__ = ("bases", "ends", "max_timestamps", "newest", "packed")

    def __init__(self) -> None:
        self.bases = array("q")
        self.ends = array("q")
        self.max_timestamps = array("q")
        #: The packed rows in sequence, as `rows_of_packed` reads them.
        self.packed = bytearray()
        #: The last packed row: of ten thousand tables, most often nothing else is needed.
        self.newest = b""

    def __len__(self) -> int:
        return len(self.bases)

    @property
    def end(self) -> int:
        """The offset behind the last row."""
        return self.ends[-1] if self.ends else 0

    def append(self, row: Row) -> None:
        """Add the next row."""
        self.append_values(row_values(row))

    def append_values(self, values: RowValues) -> None:
        """Add the next row, given by its field values."""
        self.newest = newest = _PACKED.pack(*values)
        self.packed += newest
        self.ends.append(values[_END])
        self.max_timestamps.append(values[_MAX_TIMESTAMP])
        self.bases.append(values[_BASE])

    def row(self, index: int) -> Row:
        """The row at this index."""
        return Row(*_PACKED.unpack_from(self.packed, index * ROW_BYTES))

    def first_behind(self, offset: int) -> int:
        """The index of the first row that covers this offset or a later one."""
        return bisect_right(self.ends, offset, 0, len(self.bases))

    def end_of_run(self, first: int, limit: int, end: int) -> int:
        """The index, at most `limit`, of the next row that follows a hole or begins at `end`."""
        for index in range(first + 1, limit):
            if self.bases[index] != self.ends[index - 1] or self.bases[index] >= end:
                return index
        return limit

    def columns(self, first: int, behind: int) -> PackedRows:
        """A copy of some rows as columns, since the table may grow meanwhile."""
        return PackedRows(self.packed[first * ROW_BYTES : behind * ROW_BYTES])

    def spliced(self, start: int, end: int, row: Row | None) -> RowTable:
        """A new table, with `row` (or none) in place of rows with a base offset in [start, end)."""
        low, high = bisect_left(self.bases, start), bisect_left(self.bases, end)
        table = RowTable()
        for index in range(low):
            table.append(self.row(index))
        if row is not None:
            table.append(row)
        for index in range(high, len(self)):
            table.append(self.row(index))
        return table


class PackedRows(Rows):
    """Packed rows as columns."""

    def __init__(self, packed: bytes | bytearray) -> None:
        self._rows: Array = np.frombuffer(packed, _COLUMNS)

    def column(self, name: str) -> Array:
        """See `Rows.column`."""
        return self._rows[name]


def packed_between(tables: Iterable[RowTable], starts: Numbers, ends: Numbers) -> list[bytes]:
    """Of each table the rows that cover offsets from a start up to an end, packed."""
    tables = list(tables)
    found, longer = _newest_between(tables, starts, ends)
    for place in longer.tolist():
        table, start, end = tables[place], int(starts[place]), int(ends[place])
        first, behind = table.first_behind(start), bisect_left(table.bases, end)
        found[place] = bytes(table.packed[first * ROW_BYTES : behind * ROW_BYTES])
    return found


def _newest_between(
    tables: Sequence[RowTable], starts: Numbers, ends: Numbers
) -> tuple[list[bytes], Numbers]:
    """The same of the newest row alone, and which tables may have older ones that belong to it.

    There may be ten thousand tables, none of them in a cache: one look at each is what it takes.
    """
    found = [table.newest for table in tables]
    filled = np.flatnonzero(np.fromiter(map(len, found), np.int64, len(found)))
    newest: Array = np.frombuffer(b"".join(found), _COLUMNS)
    bases, behind, start = newest["base_offset"], newest["end_offset"], starts[filled]
    for place in filled[(behind <= start) | (bases >= ends[filled])].tolist():
        found[place] = b""
    return found, filled[bases > start]


def rows_of_packed(packed: bytes) -> Iterator[Row]:
    """Unpack rows one by one, as `Row` values."""
    return (Row(*values) for values in _PACKED.iter_unpack(packed))


def block_of_packed(packed: bytes | bytearray) -> Block:
    """Unpack rows into columns of numbers: base and end offsets, weights, bytes to read."""
    rows = PackedRows(packed)
    return rows.bases, rows.ends, rows.weight, rows.bytes
