"""Many ranges of rows of binary columns, copied out of where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.scattered import WITHIN, Views

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

#: The bytes of one binary column at most.
_COLUMN_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows without nulls: the length of each, and their bytes one behind the other."""

    lengths: npt.NDArray[np.int32]
    data: bytes | pa.Buffer

    def column(self) -> pa.Array:
        """The rows as a column; InvalidRequestError when they are more than one can have."""
        check_column("messages", len(self.data))
        bounds = pa.py_buffer(_bounds(self.lengths, np.int32))
        buffers = [None, bounds, pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(self.lengths), buffers)


def check_column(what: str, size: int) -> None:
    """InvalidRequestError when so many bytes are more than one column can have."""
    if size > _COLUMN_BYTES:
        raise InvalidRequestError(
            f"{size} bytes of {what} are more than one column can have: ask for fewer queues, or "
            "fewer messages of each, at a time"
        )


def gathered(pieces: Sequence[pa.Array], firsts: _Numbers, counts: _Numbers) -> Gathered:
    """Some ranges of rows of binary columns that are one behind the other, none of them null.

    Each range stands in one piece; its bytes are copied as one.
    """
    rows = np.array([0, *(len(piece) for piece in pieces)]).cumsum()
    of = rows[:-1].searchsorted(firsts, "right") - 1
    bounds = np.concatenate([np.zeros(0, np.int32), *map(_bounds_of, pieces)])
    at = firsts + of  # each piece has one bound more than rows
    lengths = np.diff(bounds)[ranges(at, counts)]
    begins, sizes = bounds[at], bounds[at + counts] - bounds[at]
    if (sizes <= WITHIN).any():
        found = Views(pa.chunked_array(pieces, pa.binary())).viewed(ranges(firsts, counts))
    else:
        # First bytes, of which a view has four, are there for comparing: copying asks for none.
        views = np.stack([sizes, np.zeros_like(sizes), of, begins], axis=1, dtype=np.int32)
        data = [piece.buffers()[2] or pa.py_buffer(b"") for piece in pieces]
        buffers = [None, pa.py_buffer(views), *data]
        found = pa.Array.from_buffers(pa.binary_view(), len(views), buffers)
    _, ends, copied = found.cast(pa.large_binary()).buffers()
    return Gathered(lengths, copied.slice(0, int(np.frombuffer(ends, np.int64)[len(found)])))


def _bounds_of(piece: pa.Array) -> npt.NDArray[np.int32]:
    """Where each row of a binary column begins in its bytes, and where the last one ends."""
    if not len(piece):
        return np.zeros(1, np.int32)
    return np.frombuffer(piece.buffers()[1], np.int32)[piece.offset :][: len(piece) + 1]


def rearranged(pieces: Sequence[Gathered], counts: _Numbers, order: _Numbers) -> Gathered:
    """The rows of these, one behind the other, in another order of ranges of so many rows."""
    if len(pieces) == 1 and (np.diff(order) == 1).all():
        return pieces[0]
    bounds = _bounds(np.array([len(piece.lengths) for piece in pieces], np.int64), np.int64)
    behind = np.cumsum(counts)[order]
    _, firsts, within = split(bounds, behind - counts[order], behind)
    return gathered([piece.column() for piece in pieces], firsts, within)


def split(
    bounds: _Numbers, firsts: _Numbers, behinds: _Numbers
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Ranges of rows, none empty, cut where they cross bounds.

    Between which bounds each stands, its first row, and how many it has.
    """
    parts = bounds.searchsorted(firsts, "right") - 1
    times = bounds.searchsorted(behinds) - parts
    of, parts = np.repeat(np.arange(len(firsts)), times), ranges(parts, times)
    lows = np.maximum(firsts[of], bounds[parts])
    return parts, lows, np.minimum(behinds[of], bounds[parts + 1]) - lows


def ranges(firsts: _Numbers, counts: _Numbers) -> _Numbers:
    """The numbers from each first on, so many of each."""
    found = np.repeat(firsts - np.cumsum(counts) + counts, counts)
    found += np.arange(len(found))
    return found


def _bounds(lengths: npt.NDArray[Any], kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    bounds = np.zeros(len(lengths) + 1, kind)
    np.cumsum(lengths, out=bounds[1:])
    return bounds
