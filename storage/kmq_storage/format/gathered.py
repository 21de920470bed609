"""Many ranges of rows of binary columns: where they stand, until they are copied out of there."""

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
class Gathered:
    """Ranges of rows without nulls, none of them empty, where they stand."""

    #: Of each row.
    lengths: npt.NDArray[np.int32]
    #: The rows of each range.
    counts: Numbers
    #: The bytes of each range, in which buffer they stand, and where.
    sizes: Numbers
    buffers: Numbers
    begins: Numbers
    data: Sequence[pa.Buffer]

    def column(self) -> pa.Array:
        """The rows as a column; InvalidRequestError when they are more than one can have."""
        check_column("messages", int(self.sizes.sum()))
        bounds = pa.py_buffer(_bounds(self.lengths, np.int32))
        return pa.Array.from_buffers(pa.binary(), len(self.lengths), [None, bounds, self._bytes()])

    @property
    def held(self) -> int:
        """The bytes of the buffers in which they stand."""
        return sum(buffer.size for buffer in self.data)

    def copied(self) -> Gathered:
        """The same, copied out of where they stand."""
        ends = np.cumsum(self.sizes)
        nowhere = np.zeros_like(ends)
        begins = ends - self.sizes
        return Gathered(self.lengths, self.counts, self.sizes, nowhere, begins, [self._bytes()])

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
        """Have the bytes of short ranges in their views."""
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
    """InvalidRequestError when so many bytes are more than one column can have."""
    if size > _COLUMN_BYTES:
        raise InvalidRequestError(
            f"{size} bytes of {what} are more than one column can have: ask for fewer queues, or "
            "fewer messages of each, at a time"
        )


def gathered(pieces: Sequence[pa.Array], firsts: Numbers, counts: Numbers) -> Gathered:
    """Some ranges of rows of binary columns that are one behind the other, none of them null.

    Each range stands in one piece.
    """
    rows = np.array([0, *(len(piece) for piece in pieces)]).cumsum()
    of = rows[:-1].searchsorted(firsts, "right") - 1
    bounds = np.concatenate([np.zeros(0, np.int32), *map(row_bounds, pieces)])
    at = firsts + of  # each piece has one bound more than rows
    lengths = np.diff(bounds)[ranges(at, counts)]
    begins = bounds[at]
    data = [piece.buffers()[2] or pa.py_buffer(b"") for piece in pieces]
    return Gathered(lengths, counts, bounds[at + counts] - begins, of, begins, data)


def rearranged(pieces: Sequence[Gathered], counts: Numbers, order: Numbers) -> Gathered:
    """The rows of these, one behind the other, in another order of ranges of so many rows.

    Each range of the pieces stands in one of those.
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
    return Gathered(
        lengths[ranges(firsts[wanted], parts[wanted])],
        parts[wanted],
        sizes[wanted],
        np.concatenate(buffers)[wanted],
        begins[wanted],
        [buffer for piece in pieces for buffer in piece.data],
    )


def split(bounds: Numbers, firsts: Numbers, behinds: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Ranges of rows, none empty, cut where they cross bounds.

    Between which bounds each stands, its first row, and how many it has.
    """
    parts = bounds.searchsorted(firsts, "right") - 1
    times = bounds.searchsorted(behinds) - parts
    of, parts = np.repeat(np.arange(len(firsts)), times), ranges(parts, times)
    lows = np.maximum(firsts[of], bounds[parts])
    return parts, lows, np.minimum(behinds[of], bounds[parts + 1]) - lows


def ranges(firsts: Numbers, counts: Numbers) -> Numbers:
    """The numbers from each first on, so many of each."""
    found = np.repeat(firsts - np.cumsum(counts) + counts, counts)
    found += np.arange(len(found))
    return found


def _bounds(lengths: Array, kind: type[np.integer[Any]]) -> Array:
    bounds = np.zeros(len(lengths) + 1, kind)
    np.cumsum(lengths, out=bounds[1:])
    return bounds
