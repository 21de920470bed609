"""Columns that stand in many pieces, of which rows are taken in any order.

Arrow puts the pieces of a column together each time that some of its rows are taken. Of bytes it
knows views, sixteen bytes that say where a row stands: those are put together instead, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.integer[Any]]


#: The bytes of so short a row stand in its view.
_WITHIN = 12


class Takeable(Protocol):
    """A column of which rows are taken."""

    def take(self, rows: _Numbers) -> pa.Array:
        """The rows with these numbers, in this order."""


def takeable(column: pa.ChunkedArray) -> Takeable:
    """A column of which rows will be taken many times."""
    return Views(column) if types.is_binary(column.type) else _Whole(column)


class _Whole:
    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column.combine_chunks()

    def take(self, rows: _Numbers) -> pa.Array:
        return self._column.take(pa.array(rows))


class Views:
    """Bytes that stand in many pieces."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        #: Of each row its length, its first bytes, and which buffer has it where; or all its bytes.
        self._views = np.empty((len(column), 4), np.int32)
        self._data: list[pa.Buffer] = []
        first = 0
        for piece in column.chunks:
            self._views[first : first + len(piece)] = self._viewed(piece)
            first += len(piece)
        nulls = column.null_count
        self._is_valid = np.asarray(column.is_valid().combine_chunks()) if nulls else None

    def _viewed(self, piece: pa.Array) -> npt.NDArray[np.int32]:
        viewed = piece.cast(pa.binary_view())
        _, views, *data = viewed.buffers()
        found = np.frombuffer(views, np.int32).reshape(-1, 4)[viewed.offset :][: len(piece)].copy()
        number = found[:, 2]
        np.add(number, len(self._data), out=number, where=found[:, 0] > _WITHIN)
        self._data += data
        return found

    def take(self, rows: _Numbers) -> pa.Array:
        """The rows with these numbers, in this order."""
        return self.viewed(rows).cast(pa.binary())

    def viewed(self, rows: _Numbers) -> pa.Array:
        """The same, where they stand."""
        valid = None if self._is_valid is None else pa.array(self._is_valid[rows]).buffers()[1]
        views = self._views.view("V16")[rows, 0]
        buffers = [valid, pa.py_buffer(views), *self._data]
        return pa.Array.from_buffers(pa.binary_view(), len(rows), buffers)
