"""Many queues at once: each run is gone through once for all that is asked for together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_storage.format.queue_table import sorting
from kmq_storage.keyed.index import QueueIndex

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

#: The messages at offsets, in order.
Read = Callable[["_Numbers"], Iterator[pa.Array]]

SCHEMA = pa.schema([("queue", pa.binary()), ("index", pa.int64()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for, in the order of the names."""

    names: pa.Array
    #: Of each the first index that is wanted, and the one behind the last.
    firsts: _Numbers
    behinds: _Numbers
    #: The number of each as it was asked for.
    numbers: _Numbers

    @classmethod
    def of(cls, names: pa.Array, firsts: _Numbers, most: int) -> Asked:
        """What is asked for in any order."""
        order = pc.sort_indices(names)
        numbers = order.to_numpy().astype(np.int64)
        first = firsts[numbers]
        return cls(names.take(order), first, first + most, numbers)

    def answer(self, index: QueueIndex, read: Read) -> pa.RecordBatch:
        """The messages in the order in which they were asked for."""
        numbers, indexes, values = self._found(index, read)
        order = sorting(numbers.astype(np.uint32), len(self.names))
        names = self.names.take(pa.array(np.argsort(self.numbers)[numbers[order]]))
        if (np.diff(order) != 1).any():  # what is asked for in the order of names is in order
            values = values.take(pa.array(order))
        columns = [names, pa.array(indexes[order]), values]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def _found(self, index: QueueIndex, read: Read) -> tuple[_Numbers, _Numbers, pa.Array]:
        """Of each message the number of who asked, its index, and itself."""
        numbers, indexes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        values = [pa.array([], pa.binary())]
        before = np.zeros(len(self.names), np.int64)
        for run in index.runs:
            starts, ends = run.spans(self.names)
            wanted = np.maximum(self.firsts, before)
            counts = np.maximum(np.minimum(self.behinds, before + ends - starts) - wanted, 0)
            rows = _ranges(starts + wanted - before, counts)
            order = np.argsort(rows, kind="stable")  # a queue may be asked for twice
            values += run.values_at(rows[order])
            numbers.append(np.repeat(self.numbers, counts)[order])
            indexes.append(_ranges(wanted, counts)[order])
            before += ends - starts
        for at in np.flatnonzero(self.behinds > before) if index.loose.end else ():
            offsets, first = self._loose(int(at), index, int(before[at]))
            numbers.append(np.full(len(offsets), self.numbers[at]))
            indexes.append(first + np.arange(len(offsets)))
            values += read(offsets)
        return np.concatenate(numbers), np.concatenate(indexes), pa.concat_arrays(values)

    def _loose(self, at: int, index: QueueIndex, before: int) -> tuple[_Numbers, int]:
        """The offsets of what of one queue is in no run, and the index of the first of them."""
        first = max(int(self.firsts[at]), before)
        most = int(self.behinds[at]) - first
        return index.loose.offsets(self.names[at].as_py(), first - before, most), first


def _ranges(firsts: _Numbers, counts: _Numbers) -> _Numbers:
    """The numbers from each first on, so many of each."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(firsts - ends + counts, counts)
