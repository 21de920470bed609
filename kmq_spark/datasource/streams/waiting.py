"""The waiting records of all topics, for `admission`: the index is read only as far as needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from kmq_spark.datasource.streams.backlog import Backlog
from kmq_spark.datasource.streams.weighing import Weighed, proportion
from kmq_storage.log.index.spread import Spread

if TYPE_CHECKING:
    from kmq_storage.arrays import Numbers

#: The index is read for this many times the rows that a batch is estimated to have room for.
_AHEAD = 2.0


class WaitingRecords:
    """Columns over the partitions of some backlogs, each with at least one record."""

    def __init__(self, backlogs: Sequence[Backlog], budget: int | None) -> None:
        self.records = _joined(each.records for each in backlogs)
        self.about = _joined(each.about for each in backlogs)
        self._backlogs = backlogs
        self._starts = _joined(each.ranges.starts for each in backlogs)
        #: Where the log's part of each partition begins; before it are records of the archive.
        self._borders = self._starts + _joined(each.archived for each in backlogs)
        self._archived_weights = _joined(each.archived_weights for each in backlogs)
        self._ends = self._starts + self.records
        share = _AHEAD * (budget or 0) / max(float(self.about.sum()), 1.0)
        #: Up to which offset the index of each partition is read.
        self._looked = np.maximum(self._starts + _part(self.records, share) + 1, self._borders)
        self._weighed: Weighed | None = None

    def cut(self, records: Numbers) -> WaitingRecords:
        """Keep only the first `records` of each partition."""
        if (records == self.records).all():
            return self
        fewer = copy(self)
        fewer.records, fewer.about = records, proportion(self.about, records, self.records)
        fewer._ends, fewer._weighed = self._starts + records, None
        return fewer

    def by_topic(self, column: Numbers) -> Iterator[tuple[Backlog, Numbers]]:
        """The backlogs, each with its part of a column."""
        first = 0
        for each in self._backlogs:
            yield each, column[..., first : first + len(each.ranges)]
            first += len(each.ranges)

    def firsts(self) -> Numbers:
        """What the first record of each weighs."""
        return self._look().firsts()

    def within(self, places: Numbers, budgets: Numbers) -> tuple[Numbers, Numbers]:
        """Return how many records of these partitions fit into their budgets, and their weight."""
        while True:
            reached, used, whole = self._look().within(places, budgets)
            more = whole & (np.maximum(reached, self._looked[places]) < self._ends[places])
            if not more.any():
                break
            self._look_further(places[more], budgets[more] / np.maximum(used[more], 1))
        return np.where(whole, self._ends[places], reached) - self._starts[places], used

    def _look_further(self, places: Numbers, times: Numbers) -> None:
        seen = self._looked[places] - self._starts[places]
        further = np.minimum(seen * np.maximum(_AHEAD * times, _AHEAD), self.records[places])
        self._looked[places] = self._starts[places] + further.astype(np.int64)
        self._weighed = None

    def _look(self) -> Weighed:
        if self._weighed is None:
            self._looked = np.minimum(self._looked, self._ends)
            self._weighed = Weighed.of(self._spread(), self._starts, self._ends)
        return self._weighed

    def _spread(self) -> Spread:
        """Return the index rows of all topics, as far as they are to be read."""
        parts = [self._of_archive()]
        columns = np.arange(len(self.records)), self._borders, self._looked
        for backlog, (places, borders, looked) in self.by_topic(np.stack(columns)):
            of_log = np.flatnonzero(looked > borders)
            seen = backlog.ranges.parts(of_log, borders[of_log], looked[of_log]).spread()
            owners = places[of_log[seen.owners]]
            parts.append((owners, seen.bases, seen.ends, seen.weights, seen.bytes))
        return Spread(*map(_joined, zip(*parts, strict=True))).in_order()

    def _of_archive(self) -> tuple[Numbers, ...]:
        """Return a row for what the archive has of each partition, as if the log had it."""
        places = np.flatnonzero(self._borders > self._starts)
        starts, borders = self._starts[places], self._borders[places]
        weights = (borders - starts) * self._archived_weights[places]
        return places, starts, borders, weights, weights


def _joined(columns: Iterable[Numbers]) -> Numbers:
    return np.concatenate([np.empty(0, np.int64), *columns])


def _part(of: Numbers, share: float) -> Numbers:
    """Return a share of each number, at most all of it."""
    return (of * min(share, 1.0)).astype(np.int64)
