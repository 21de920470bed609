"""Ranges of rows of binary columns, gathered as references to the original buffers.

The bytes are copied into a column only at the end, once all ranges are known and in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Array, Numbers
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.binary_columns import row_bounds
from kmq_storage.format.scattered import WITHIN

if TYPE_CHECKING:
    import numpy.typing as npt


#: The bytes of one binary column at most.
_COLUMN_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class RowRanges:
    """Non-empty ranges of non-null rows that are still in their original buffers."""

    #: The byte length of each row.
    lengths: npt.NDArray[np.int32]
    #: The number of rows in each range.
    counts: Numbers
    #: For each range: its bytes, the number of its buffer in `data`, and its position there.
    sizes: Numbers
    buffers: Numbers
    begins: Numbers
    data: Sequence[pa.Buffer]

    def column(self) -> pa.Array:
        """The rows copied into one column; InvalidRequestError when a column can't hold them."""
        check_column("messages", int(self.sizes.sum()))
        bounds = pa.py_buffer(_bounds(self.lengths, np.int32))
        return pa.Array.from_buffers(pa.binary(), len(self.lengths), [None, bounds, self._bytes()])

    @property
    def held(self) -> int:
        """The bytes of the buffers that the ranges keep alive."""
        return sum(buffer.size for buffer in self.data)

    def copied(self) -> RowRanges:
        """The same ranges, copied into one buffer of their own."""
        ends = np.cumsum(self.sizes)
        nowhere = np.zeros_like(ends)
        begins = ends - self.sizes
        return RowRanges(self.lengths, self.counts, self.sizes, nowhere, begins, [self._bytes()])

    def _bytes(self) -> pa.Buffer:
        views = np.stack([self.sizes, np.zeros_like(self.sizes), self.buffers, self.begins], axis=1)
        # First bytes, of which a view has four, are there for comparing: copying asks for none.
        views = views.astype(np.int32)
        self._put_within(views)
        kept = [None, pa.py_buffer(views), *self.data]
        found = pa.Array.from_buffers(pa.binary_view(), len(views), kept)
        _, ends, copied = found.cast(pa.large_binary()).buffers()
        return copied.slice(0, int(np.frombuffer(ends, np.int64)[len(found)]))

    def _put_within(self, views: npt.NDArray[np.int32]) -> None:
        """Write short ranges into their views, where Arrow expects them inline."""
        within = views.view(np.uint8).reshape(-1, 16)[:, 4:]
        within[self.sizes <= WITHIN] = 0
        short = np.flatnonzero((self.sizes <= WITHIN) & (self.sizes > 0))
        short = short[np.argsort(self.buffers[short], kind="stable")]
        numbers, firsts = np.unique(self.buffers[short], return_index=True)
        for number, some in zip(numbers.tolist(), np.split(short, firsts[1:]), strict=False):
            data = np.frombuffer(self.data[number], np.uint8)
            for place in range(WITHIN):
                some = some[self.sizes[some] > place]
                within[some, place] = data[self.begins[some] + place]


def check_column(what: str, size: int) -> None:
    """InvalidRequestError when a column can't hold this many bytes; `what` names them."""
    if size > _COLUMN_BYTES:
        raise InvalidRequestError(
            f"{size} bytes of {what} are more than one column can have: ask for fewer queues, or "
            "fewer messages of each, at a time"
        )


def gathered(pieces: Sequence[pa.Array], firsts: Numbers, counts: Numbers) -> RowRanges:
    """Ranges of rows, as numbered through all pieces in sequence.

    Each range must lie within one piece, and no row in it may be null.
    """
    rows = np.array([0, *(len(piece) for piece in pieces)]).cumsum()
    of = rows[:-1].searchsorted(firsts, "right") - 1
    bounds = np.concatenate([np.zeros(0, np.int32), *map(row_bounds, pieces)])
    at = firsts + of  # each piece has one bound more than rows
    lengths = np.diff(bounds)[ranges(at, counts)]
    begins = bounds[at]
    data = [piece.buffers()[2] or pa.py_buffer(b"") for piece in pieces]
    return RowRanges(lengths, counts, bounds[at + counts] - begins, of, begins, data)


def rearranged(pieces: Sequence[RowRanges], counts: Numbers, order: Numbers) -> RowRanges:
    """The rows of all pieces, split into blocks of `counts` rows, with the blocks in `order`.

    No range of a piece may cross the border of a block.
    """
    if not pieces:
        return gathered([], counts[:0], counts[:0])
    lengths, parts, sizes, begins = (
        np.concatenate(columns)
        for columns in zip(*((p.lengths, p.counts, p.sizes, p.begins) for p in pieces), strict=True)
    )
    before = np.cumsum([0, *(len(piece.data) for piece in pieces)])
    buffers = [piece.buffers + more for piece, more in zip(pieces, before.tolist(), strict=False)]
    firsts = np.cumsum(parts) - parts
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    wanted = np.argsort(place[np.cumsum(counts).searchsorted(firsts, "right")], kind="stable")
    return RowRanges(
        lengths[ranges(firsts[wanted], parts[wanted])],
        parts[wanted],
        sizes[wanted],
        np.concatenate(buffers)[wanted],
        begins[wanted],
        [buffer for piece in pieces for buffer in piece.data],
    )


def split(bounds: Numbers, firsts: Numbers, behinds: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Cut non-empty ranges of rows where they cross bounds.

    Returns, for each part, the number of the interval between bounds that it lies in, its first
    row, and its number of rows.
    """
    parts = bounds.searchsorted(firsts, "right") - 1
    times = bounds.searchsorted(behinds) - parts
    of, parts = np.repeat(np.arange(len(firsts)), times), ranges(parts, times)
    lows = np.maximum(firsts[of], bounds[parts])
    return parts, lows, np.minimum(behinds[of], bounds[parts + 1]) - lows


def ranges(firsts: Numbers, counts: Numbers) -> Numbers:
    """For each range, the `count` consecutive numbers that begin with its `first`."""
    found = np.repeat(firsts - np.cumsum(counts) + counts, counts)
    found += np.arange(len(found))
    return found


def _bounds(lengths: Array, kind: type[np.integer[Any]]) -> Array:
    bounds = np.zeros(len(lengths) + 1, kind)
    np.cumsum(lengths, out=bounds[1:])
    return bounds
