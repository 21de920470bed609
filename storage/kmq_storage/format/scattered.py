"""Columns in many pieces, from which rows are taken many times in any order.

Arrow joins the pieces of a column each time that rows are taken. For bytes, this is avoided by
views, which are sixteen bytes that tell where a row is: only the views are joined, and only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types

from kmq_storage.arrays import Numbers
from kmq_storage.format.binary_columns import row_bounds
from kmq_storage.format.plain_columns import flags_of, number_column, numbers_of

if TYPE_CHECKING:
    import numpy.typing as npt

    _Integers = npt.NDArray[np.integer[Any]]


#: The bytes of a row up to this length are in its view.
WITHIN = 12
#: If no number is further than this from the least one, numbers take four bytes each.
_NEAR = (1 << 32) - 1


class Takeable(Protocol):
    """A column from which rows are taken."""

    def take(self, rows: _Integers) -> pa.Array:
        """The rows with these numbers, in this order."""


def takeable(column: pa.ChunkedArray) -> Takeable:
    """A column in a form from which rows can be taken many times."""
    if types.is_binary(column.type):
        return Views(column)
    if types.is_timestamp(column.type) and not column.null_count:
        pieces = [numbers_of(piece.view(pa.int64())) for piece in column.chunks]
        return _Instants(PackedNumbers.of(pieces), column.type)
    return _Whole(column)


class _Whole:
    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column.combine_chunks()

    def take(self, rows: _Integers) -> pa.Array:
        return self._column.take(number_column(rows))


class PackedNumbers:
    """Whole numbers, in four bytes each if they are near each other, or none if consecutive."""

    def __init__(self, least: int, more: _Integers | None) -> None:
        self._least = least
        #: The distance of each number from the least; None for consecutive numbers.
        self._more = more

    @classmethod
    def of(cls, pieces: Sequence[Numbers]) -> PackedNumbers:
        """The numbers of pieces in sequence."""
        found = [(int(np.min(piece)), int(np.max(piece))) for piece in pieces if len(piece)]
        least = min((low for low, _ in found), default=0)
        is_near = max((high for _, high in found), default=0) - least <= _NEAR
        if not is_near:
            return cls(0, np.concatenate(pieces))
        more = np.empty(sum(map(len, pieces)), np.uint32)
        first = 0
        for piece in pieces:
            np.subtract(piece, least, out=more[first : first + len(piece)], casting="unsafe")
            first += len(piece)
        return cls(least, more)

    def take(self, rows: _Integers) -> Numbers:
        """The numbers in these rows, in this order."""
        found = (rows if self._more is None else self._more[rows]).astype(np.int64)
        found += self._least
        return found


class _Instants:
    """A column of timestamps without nulls, stored as packed numbers."""

    def __init__(self, numbers: PackedNumbers, kind: pa.DataType) -> None:
        self._numbers = numbers
        self._kind = kind

    def take(self, rows: _Integers) -> pa.Array:
        return number_column(self._numbers.take(rows)).view(self._kind)


class Views:
    """Values of bytes in many pieces."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        #: For each row, its length, first bytes, buffer and position; or all its bytes.
        self._views = np.empty((len(column), 4), np.int32)
        self._data: list[pa.Buffer] = []
        first = 0
        for piece in filter(len, column.chunks):
            self._view(piece, self._views[first : first + len(piece)])
            first += len(piece)
        nulls = column.null_count
        self._is_valid = flags_of(column.is_valid().combine_chunks()) if nulls else None

    def _view(self, piece: pa.Array, views: npt.NDArray[np.int32]) -> None:
        bounds = row_bounds(piece)
        sizes, number = np.diff(bounds), len(self._data)
        if sizes.min() > WITHIN:
            # First bytes are only needed for comparisons, not for taking rows.
            views[:, 0], views[:, 2], views[:, 3] = sizes, number, bounds[:-1]
            self._data.append(piece.buffers()[2])
            return
        viewed = piece.cast(pa.binary_view())
        _, found, *data = viewed.buffers()
        views[:] = np.frombuffer(found, np.int32).reshape(-1, 4)[viewed.offset :][: len(piece)]
        np.add(views[:, 2], number, out=views[:, 2], where=views[:, 0] > WITHIN)
        self._data += data

    def take(self, rows: _Integers) -> pa.Array:
        """The rows with these numbers, in this order."""
        valid = None if self._is_valid is None else number_column(self._is_valid[rows]).buffers()[1]
        views = self._views.view("V16")[rows, 0]
        buffers = [valid, pa.py_buffer(views), *self._data]
        return pa.Array.from_buffers(pa.binary_view(), len(rows), buffers).cast(pa.binary())
