"""Tables of queues and their rows, with the names sorted by their bytes.

Rows are numbers of things that are sorted by queue. A queue has the rows from its start up to the
next queue's start. It costs the bytes of its name and ten more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.cached import cached_property
from kmq_storage.format.plain_columns import number_column, numbers_of, scalar
from kmq_storage.format.row_order import row_order

if TYPE_CHECKING:
    import numpy.typing as npt

    from kmq_storage.format.row_order import Order


#: When a table has less than this many times the names to look up, hashing all of it pays.
_HASHED_SHARE = 16
#: One in this many names is kept as a Python object, for lookups.
_MARKED = 32


class _Named:
    """Ascending, distinct names of queues."""

    def __init__(self, names: pa.Array) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def places_of(self, names: pa.Array) -> Numbers:
        """The index of each name here, or -1."""
        if len(names) * _HASHED_SHARE > len(self):
            found = pc.index_in(names, value_set=self.names)
            return numbers_of(found.fill_null(scalar(-1, found.type))).astype(np.int64)
        return np.array([self._place_of(name) for name in names.to_pylist()], np.int64)

    def _place_of(self, name: bytes) -> int:
        first, near = self._near(name)
        at = bisect_left(near, name)
        return first + at if at < len(near) and near[at] == name else -1

    def _first_from(self, name: bytes) -> int:
        """The index of the first name that is equal to or above this one."""
        first, near = self._near(name)
        return first + bisect_left(near, name)

    def _near(self, name: bytes) -> tuple[int, list[bytes]]:
        """The index of a name near this one, and the names from there on that may include it."""
        first = max(bisect_right(self._marks, name) - 1, 0) * _MARKED
        return first, self.names.slice(first, _MARKED).to_pylist()

    @cached_property
    def _marks(self) -> list[bytes]:
        """Some of the names as Python objects, so that a lookup reads few names through Arrow."""
        places = np.arange(0, len(self), _MARKED)
        marks: list[bytes] = self.names.take(number_column(places)).to_pylist()
        return marks


class QueueTable(_Named):
    """Names of queues, and where the rows of each begin."""

    def __init__(self, names: pa.Array, starts: npt.NDArray[np.integer[Any]]) -> None:
        super().__init__(names)
        #: The first row of each queue, and the row behind the last queue.
        self.starts = starts

    @property
    def rows(self) -> int:
        """The number of rows of all queues."""
        return int(self.starts[-1] - self.starts[0])

    @property
    def rows_end(self) -> int:
        """The row behind the last queue."""
        return int(self.starts[-1])

    def rows_of(self, name: bytes) -> tuple[int, int]:
        """The first row of a queue, and the row behind its last; equal if it has none."""
        at = self._place_of(name)
        return (0, 0) if at < 0 else (int(self.starts[at]), int(self.starts[at + 1]))

    def row_from(self, name: bytes) -> int:
        """The first row of the first queue whose name is equal to or above this one."""
        return int(self.starts[self._first_from(name)])

    def between(self, first: int, behind: int) -> QueueTable:
        """The queues with rows in [first, behind), which must not cut a queue."""
        low, high = self.starts.searchsorted((first, behind)).tolist()
        low, high = min(low, len(self)), min(high, len(self))
        return QueueTable(self.names.slice(low, high - low), self.starts[low : high + 1])

    def names_between(self, first: int, behind: int) -> pa.Array:
        """The queue's name for each row in [first, behind)."""
        low = int(self.starts.searchsorted(first, "right")) - 1
        bounds = self.starts[low : int(self.starts.searchsorted(behind)) + 1].clip(first, behind)
        places = np.repeat(np.arange(low, low + len(bounds) - 1), np.diff(bounds))
        return self.names.take(number_column(places))

    def moved(self, rows: int) -> QueueTable:
        """The same queues, with rows that begin at another number."""
        return QueueTable(self.names, self.starts - self.starts[0] + np.int64(rows))

    def only(self, kept: Mask) -> QueueTable:
        """The queues with only the rows of a mask, numbered from 0."""
        behind = np.concatenate([[0], np.cumsum(kept)])[self.starts - self.starts[0]]
        named = np.flatnonzero(np.diff(behind))
        starts = behind[np.concatenate([named, [len(behind) - 1]])]
        return QueueTable(self.names.take(number_column(named)), starts)

    def spans(self, names: pa.Array) -> tuple[Numbers, Numbers]:
        """The first row of each queue, and the row behind its last; equal if it has none."""
        places = self.places_of(names)
        known = places >= 0
        nowhere = np.int64(0)
        starts = np.where(known, self.starts[places], nowhere)
        return starts, np.where(known, self.starts[places + 1], nowhere)


class Beginnings(_Named):
    """Names of queues that begin anew somewhere, with the index of their first message there."""

    def __init__(self, names: pa.Array, indexes: Numbers) -> None:
        super().__init__(names)
        self.indexes = indexes

    @classmethod
    def none(cls) -> Beginnings:
        """The beginnings of no queue."""
        return cls(pa.nulls(0, pa.binary()), np.zeros(0, np.int64))

    def of(self, name: bytes) -> int | None:
        """The index at which a queue begins anew; None if it does not."""
        at = self._place_of(name)
        return None if at < 0 else int(self.indexes[at])

    def of_all(self, names: pa.Array) -> Numbers:
        """As `of`, for many queues; -1 for a queue that does not begin anew."""
        places = self.places_of(names)
        found = np.full(len(places), -1)
        found[places >= 0] = self.indexes[places[places >= 0]]
        return found


def overlaid(before: Beginnings, later: Beginnings) -> Beginnings:
    """The beginnings of both, with the later one for queues in both."""
    names = grouped(pa.concat_arrays([before.names, later.names]))[0].names
    first, last = before.of_all(names), later.of_all(names)
    return Beginnings(names, np.where(last < 0, first, last))


def beginnings_of_all(blocks: Sequence[Beginnings]) -> Beginnings:
    """Consecutive blocks joined into one."""
    none = Beginnings.none()
    names = pa.concat_arrays([none.names, *(each.names for each in blocks)])
    return Beginnings(names, np.concatenate([none.indexes, *(each.indexes for each in blocks)]))


def first_from(names: pa.Array, name: bytes, low: int = 0) -> int:
    """The index, at least `low`, of the first of ascending names that is not below `name`."""
    return bisect_left(range(len(names)), name, low, key=lambda at: names[at].as_py())


def grouped(keys: pa.Array | pa.ChunkedArray) -> tuple[QueueTable, Order]:
    """The queues of rows with these names, and the rows sorted by queue.

    Rows of one queue stay in their order. `keys` must not have nulls.
    """
    if isinstance(keys, pa.Array):
        keys = pa.chunked_array([keys])
    pieces, places = different(keys.chunks)
    encoded = pa.chunked_array(pieces, keys.type).dictionary_encode().chunks
    names = encoded[0].dictionary if encoded else pa.nulls(0, keys.type)
    return _ordered(names, [numbers_of(piece.indices) for piece in encoded], places)


def different(pieces: Sequence[pa.Array]) -> tuple[list[pa.Array], list[int]]:
    """The distinct pieces, and the index of each piece among them.

    A producer that sends to all queues in turn repeats their names in the same order. Comparing
    pieces takes a fiftieth of the time of looking each name up.
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
    """One table of all queues, and the rows of all tables in its order.

    Rows of the tables are numbered through in sequence.
    """
    names = pa.concat_arrays([table.names for table in tables]).dictionary_encode()
    counts = np.concatenate([np.diff(table.starts) for table in tables])
    return _ordered(names.dictionary, [np.repeat(numbers_of(names.indices), counts)], [0])


def _ordered(
    names: pa.Array, pieces: Sequence[npt.NDArray[np.int32]], places: Sequence[int]
) -> tuple[QueueTable, Order]:
    """The table for rows in pieces, which are given as numbers of names."""
    order = pc.sort_indices(names)
    ranks = np.empty(len(names), np.uint32)
    ranks[numbers_of(order)] = np.arange(len(names), dtype=np.uint32)
    starts, rows = row_order([ranks[piece] for piece in pieces], places, len(names))
    return QueueTable(names.take(order), starts), rows
