"""Queues and their rows: names in the order of their bytes, and which rows each of them has.

Rows are numbers of anything that stands in the order of queues: a queue has those between its
start and the next one's. A queue costs its name and ten bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.format.plain_columns import number_column, numbers_of, scalar
from kmq_storage.format.row_order import row_order

if TYPE_CHECKING:
    import numpy.typing as npt

    from kmq_storage.format.row_order import Order


#: When a table has less than this many times as many names as are looked up, hashing all pays.
_HASHED_SHARE = 16
#: One in so many names of a table is kept as an object, to look one up.
_MARKED = 32


class _Named:
    """The names of some queues, ascending and each once."""

    def __init__(self, names: pa.Array) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def places_of(self, names: pa.Array) -> Numbers:
        """Where each of many names stands here, -1 where it does not."""
        if len(names) * _HASHED_SHARE > len(self):
            found = pc.index_in(names, value_set=self.names)
            return numbers_of(found.fill_null(scalar(-1, found.type))).astype(np.int64)
        return np.array([self._place_of(name) for name in names.to_pylist()], np.int64)

    def _place_of(self, name: bytes) -> int:
        first, near = self._near(name)
        at = bisect_left(near, name)
        return first + at if at < len(near) and near[at] == name else -1

    def _first_from(self, name: bytes) -> int:
        """The place of the first name that is not below this one."""
        first, near = self._near(name)
        return first + bisect_left(near, name)

    def _near(self, name: bytes) -> tuple[int, list[bytes]]:
        """Names among which this one stands if it is here, and the place of the first of them."""
        first = max(bisect_right(self._marks, name) - 1, 0) * _MARKED
        return first, self.names.slice(first, _MARKED).to_pylist()

    @cached_property
    def _marks(self) -> list[bytes]:
        """Some of the names, as objects: to find one takes no look at a dozen through Arrow."""
        places = np.arange(0, len(self), _MARKED)
        marks: list[bytes] = self.names.take(number_column(places)).to_pylist()
        return marks


class QueueTable(_Named):
    """The names of some queues, and where the rows of each begin."""

    def __init__(self, names: pa.Array, starts: npt.NDArray[np.integer[Any]]) -> None:
        super().__init__(names)
        #: One more than names: where the rows of the last queue end, too.
        self.starts = starts

    @property
    def rows(self) -> int:
        """The rows of all queues."""
        return int(self.starts[-1] - self.starts[0])

    @property
    def rows_end(self) -> int:
        """The row behind those of the last queue."""
        return int(self.starts[-1])

    def rows_of(self, name: bytes) -> tuple[int, int]:
        """The first row of a queue, and the one behind its last; the same where it has none."""
        at = self._place_of(name)
        return (0, 0) if at < 0 else (int(self.starts[at]), int(self.starts[at + 1]))

    def row_from(self, name: bytes) -> int:
        """The first row of the first queue whose name is not below this one."""
        return int(self.starts[self._first_from(name)])

    def between(self, first: int, behind: int) -> QueueTable:
        """The queues whose rows lie in [first, behind), which begins and ends with a queue."""
        low, high = self.starts.searchsorted((first, behind)).tolist()
        low, high = min(low, len(self)), min(high, len(self))
        return QueueTable(self.names.slice(low, high - low), self.starts[low : high + 1])

    def names_between(self, first: int, behind: int) -> pa.Array:
        """The name of the queue of each row in [first, behind)."""
        low = int(self.starts.searchsorted(first, "right")) - 1
        bounds = self.starts[low : int(self.starts.searchsorted(behind)) + 1].clip(first, behind)
        places = np.repeat(np.arange(low, low + len(bounds) - 1), np.diff(bounds))
        return self.names.take(number_column(places))

    def moved(self, rows: int) -> QueueTable:
        """The same queues, whose rows begin elsewhere."""
        return QueueTable(self.names, self.starts - self.starts[0] + np.int64(rows))

    def only(self, kept: Mask) -> QueueTable:
        """The queues with some of the rows, which are given in order; rows count from 0 on."""
        behind = np.concatenate([[0], np.cumsum(kept)])[self.starts - self.starts[0]]
        named = np.flatnonzero(np.diff(behind))
        starts = behind[np.concatenate([named, [len(behind) - 1]])]
        return QueueTable(self.names.take(number_column(named)), starts)

    def spans(self, names: pa.Array) -> tuple[Numbers, Numbers]:
        """The first row of each of many queues, and the one behind; the same where it has none."""
        places = self.places_of(names)
        known = places >= 0
        nowhere = np.int64(0)
        starts = np.where(known, self.starts[places], nowhere)
        return starts, np.where(known, self.starts[places + 1], nowhere)


class Beginnings(_Named):
    """The names of queues that begin anew somewhere, and the index of the first message there."""

    def __init__(self, names: pa.Array, indexes: Numbers) -> None:
        super().__init__(names)
        self.indexes = indexes

    @classmethod
    def none(cls) -> Beginnings:
        """No queue does."""
        return cls(pa.nulls(0, pa.binary()), np.zeros(0, np.int64))

    def of(self, name: bytes) -> int | None:
        """The index at which a queue begins anew; None when it goes on."""
        at = self._place_of(name)
        return None if at < 0 else int(self.indexes[at])

    def of_all(self, names: pa.Array) -> Numbers:
        """The same of many queues; -1 where one goes on."""
        places = self.places_of(names)
        found = np.full(len(places), -1)
        found[places >= 0] = self.indexes[places[places >= 0]]
        return found


def overlaid(before: Beginnings, later: Beginnings) -> Beginnings:
    """Where queues begin that begin anew once, and some of them once more."""
    names = grouped(pa.concat_arrays([before.names, later.names]))[0].names
    first, last = before.of_all(names), later.of_all(names)
    return Beginnings(names, np.where(last < 0, first, last))


def beginnings_of_all(blocks: Sequence[Beginnings]) -> Beginnings:
    """Blocks that follow each other as one."""
    none = Beginnings.none()
    names = pa.concat_arrays([none.names, *(each.names for each in blocks)])
    return Beginnings(names, np.concatenate([none.indexes, *(each.indexes for each in blocks)]))


def first_from(names: pa.Array, name: bytes, low: int = 0) -> int:
    """The place of the first of ascending names, from a place on, that is not below this one."""
    return bisect_left(range(len(names)), name, low, key=lambda at: names[at].as_py())


def grouped(keys: pa.Array | pa.ChunkedArray) -> tuple[QueueTable, Order]:
    """The queues of rows with these names, and the rows in the order of their queues.

    Rows of one queue stay in their order. `keys` has no nulls.
    """
    if isinstance(keys, pa.Array):
        keys = pa.chunked_array([keys])
    pieces, places = different(keys.chunks)
    encoded = pa.chunked_array(pieces, keys.type).dictionary_encode().chunks
    names = encoded[0].dictionary if encoded else pa.nulls(0, keys.type)
    return _ordered(names, [numbers_of(piece.indices) for piece in encoded], places)


def different(pieces: Sequence[pa.Array]) -> tuple[list[pa.Array], list[int]]:
    """Pieces without those that are like one before them, and where each of all stands there.

    Who puts to all queues in turn names them in one order again and again: to compare names that
    stand side by side takes a fiftieth of what it takes to find each.
    """
    found: list[pa.Array] = []
    known: dict[tuple[int, pa.Scalar, pa.Scalar], int] = {}
    places: list[int] = []
    for piece in pieces:
        if not len(piece):
            continue
        place = known.setdefault((len(piece), piece[0], piece[-1]), len(found))
        if place == len(found) or not piece.equals(found[place]):
            place = len(found)
            found.append(piece)
        places.append(place)
    return found, places


def merged(tables: Sequence[QueueTable]) -> tuple[QueueTable, Order]:
    """One table of all queues, and the rows of all tables, one behind the other, in its order."""
    names = pa.concat_arrays([table.names for table in tables]).dictionary_encode()
    counts = np.concatenate([np.diff(table.starts) for table in tables])
    return _ordered(names.dictionary, [np.repeat(numbers_of(names.indices), counts)], [0])


def _ordered(
    names: pa.Array, pieces: Sequence[npt.NDArray[np.int32]], places: Sequence[int]
) -> tuple[QueueTable, Order]:
    """A table of rows in pieces, of which each row has the number of its name."""
    order = pc.sort_indices(names)
    ranks = np.empty(len(names), np.uint32)
    ranks[numbers_of(order)] = np.arange(len(names), dtype=np.uint32)
    starts, rows = row_order([ranks[piece] for piece in pieces], places, len(names))
    return QueueTable(names.take(order), starts), rows
