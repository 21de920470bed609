"""Records that runs leave out: messages before an end of their queue, and superseded ends.

An end is a record with a queue's key and without a value. Of several ends, the last one counts. It
stays, for readers by offset, until it is old and there are no messages before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.format.plain_columns import number_column
from kmq_storage.format.queue_table import Beginnings, QueueTable, grouped
from kmq_storage.format.records import tombstones_of
from kmq_storage.log.reading.run_index import RunIndex


def without_dead(keys: pa.Array, ends: Numbers) -> tuple[Mask, Beginnings]:
    """A mask of the records that stay, and the queues that begin anew among them.

    `keys` are in the order of offsets, and `ends` are the rows that end their queue.
    """
    if not len(ends):
        return np.ones(len(keys), np.bool_), Beginnings.none()
    table, order = grouped(keys.take(number_column(ends)))
    last = ends[order[table.starts[1:] - 1]]
    places = table.places_of(keys)
    dead_below = np.where(places < 0, 0, last[places])
    kept: Mask = np.arange(len(keys)) >= dead_below
    return kept, Beginnings(table.names, np.zeros(len(table), np.int64))


class LastBeginnings:
    """For consecutive runs, the run in which each queue last begins anew."""

    def __init__(self, runs: Sequence[RunIndex], forgotten: int, ended: pa.Array | None) -> None:
        """Ends in the first `forgotten` runs are dropped, as there are no records before them.

        The queues `ended` begin anew behind all runs.
        """
        found = [(number, each) for number, run in enumerate(runs) for each in run.beginnings()]
        self._count = len(runs)
        if ended is not None:
            found.append((self._count, Beginnings(ended, np.zeros(len(ended), np.int64))))
        names = [pa.nulls(0, pa.binary()), *(each.names for _, each in found)]
        table, order = grouped(pa.concat_arrays(names))
        last = order[table.starts[1:] - 1]
        #: The number of the run for each name.
        self._numbers = _joined([np.full(len(each), number) for number, each in found])[last]
        self._all = Beginnings(table.names, _joined([each.indexes for _, each in found])[last])
        self._forgotten = (self._numbers < forgotten) & (self._all.indexes == 0)

    def __len__(self) -> int:
        return len(self._all)

    def kept(self) -> Beginnings:
        """The beginnings within the runs, without dropped ends."""
        kept = np.flatnonzero(~self._forgotten & (self._numbers < self._count))
        return Beginnings(self._all.names.take(number_column(kept)), self._all.indexes[kept])

    def alive(self, number: int, table: QueueTable) -> Mask:
        """A mask of the rows of a run's table whose queues do not begin anew in a later run."""
        if not len(self):
            return np.ones(table.rows, np.bool_)
        places = self._all.places_of(table.names)
        later = (places >= 0) & (self._numbers[places] > number)
        return np.repeat(~later, np.diff(table.starts))

    def without_ends(self, number: int, others: pa.Table) -> pa.Table:
        """A run's records that are no messages, without superseded and dropped ends."""
        if not len(self):
            return others
        kept = [others.slice(0, 0)]
        for batch in others.to_batches():
            ends = tombstones_of(batch)
            places = self._all.places_of(batch.column("key").take(number_column(ends)))
            gone = (self._numbers[places] > number) | self._forgotten[places]
            stays = np.ones(batch.num_rows, np.bool_)
            stays[ends] = (places < 0) | ~gone
            kept.append(pa.Table.from_batches([batch]).filter(number_column(stays)))
        return pa.concat_tables(kept)


def _joined(numbers: Sequence[Numbers]) -> Numbers:
    return np.concatenate([np.zeros(0, np.int64), *numbers])
