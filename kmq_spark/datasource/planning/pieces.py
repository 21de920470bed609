"""Cuts offset ranges into tasks of about equal bytes, by way of small pieces: pure arithmetic.

All ranges of a read are in the same arrays: there may be ten thousand partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning.ranges import OffsetRange, at_most, divide
from kmq_storage.log.index.spread import Spread, firsts_and_lasts

if TYPE_CHECKING:
    from kmq_storage.arrays import Numbers

    #: A row for each: which range, and which of its offsets, from a start up to an end.
    Parts: TypeAlias = Numbers

#: A piece larger than this part (an eighth) of a task is divided, so no task is off by more.
_TASK_SHARE = 8


@dataclass(frozen=True)
class Pieces:
    """Consecutive offsets and their bytes, range by range."""

    #: The number of the range that a piece is of.
    owners: Numbers
    starts: Numbers
    ends: Numbers
    bytes: Numbers

    @classmethod
    def of(cls, spread: Spread, low: Numbers, high: Numbers) -> Pieces:
        """The pieces of ranges, cut to their bounds; a piece that is cut counts in proportion.

        They take over the arrays of the spread and change them, so no one else may use it.
        """
        first, last = firsts_and_lasts(spread.owners)
        starts, ends, read = spread.bases, spread.ends, spread.bytes
        cut = np.append(first, last)
        whole = ends[cut] - starts[cut]
        # Rows don't overlap: no other one reaches over a bound.
        starts[first] = np.maximum(starts[first], low[spread.owners[first]])
        ends[last] = np.minimum(ends[last], high[spread.owners[last]])
        share = (ends[cut] - starts[cut]) / whole
        read[cut] = (read[cut] * share).astype(np.int64)
        return cls(spread.owners, starts, ends, read)

    @classmethod
    def joined(cls, parts: Sequence[Pieces], counts: Sequence[int]) -> Pieces:
        """Join pieces of several reads; the ranges of all reads are numbered consecutively."""
        if not parts:
            return cls(*(np.empty(0, np.int64) for _ in range(4)))
        if len(parts) == 1:
            return parts[0]
        firsts = np.cumsum([0, *counts[:-1]])
        owners = [part.owners + first for part, first in zip(parts, firsts, strict=True)]
        rest = ([getattr(part, name) for part in parts] for name in ("starts", "ends", "bytes"))
        return cls(*map(np.concatenate, (owners, *rest)))

    @property
    def total(self) -> int:
        """The bytes of all pieces."""
        return int(self.bytes.sum())

    def balanced(self, tasks: int) -> list[Parts]:
        """Cut into at most `tasks` runs of about equal bytes; a run may have several ranges.

        A run exceeds its share by at most an eighth, unless a record does.
        """
        fine = self._finer(self.total // (tasks * _TASK_SHARE))
        return fine._runs(np.zeros(1, np.int64), np.array([tasks]))

    def of_bytes(self, most: int) -> Parts:
        """Cut into parts of at most `most` bytes, each in one range; one record may be larger."""
        if not len(self.owners):
            return np.empty((0, 3), np.int64)
        totals = np.bincount(self.owners, self.bytes)
        counts = np.maximum(np.ceil(totals / share_of(most)), 1).astype(np.int64)
        fine = self._finer(most // (2 * _TASK_SHARE))
        first, _ = firsts_and_lasts(fine.owners)
        return np.concatenate(fine._runs(first, counts[fine.owners[first]]))

    def _finer(self, largest: int) -> Pieces:
        """Divide the pieces that are larger than about this many bytes."""
        largest = max(largest, 1)
        if np.max(self.bytes, initial=0) <= largest:
            return self
        parts = np.maximum(-(-self.bytes // largest), 1)
        parts = np.minimum(parts, np.maximum(self.ends - self.starts, 1))
        starts, widths = np.repeat(self.starts, parts), np.repeat(self.ends - self.starts, parts)
        counts = np.repeat(parts, parts)
        number = np.arange(len(counts)) - np.repeat(np.cumsum(parts) - parts, parts)
        return Pieces(
            np.repeat(self.owners, parts),
            starts + widths * number // counts,
            starts + widths * (number + 1) // counts,
            np.repeat(self.bytes, parts) // counts,
        )

    def _runs(self, first: Numbers, counts: Numbers) -> list[Parts]:
        """Cut each group of pieces into tasks, and return the parts of each task.

        `first` has the first piece of each group, `counts` its number of tasks. Tasks have equal
        shares of their group's bytes. A piece goes to the task in whose share its middle is.
        """
        count = len(self.owners)
        if not count:
            return []
        behind, sums = np.append(first[1:], count), np.cumsum(self.bytes)
        before = sums[first] - self.bytes[first]
        groups = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(groups)) - (np.cumsum(counts) - counts)[groups]
        shares = before[groups] + (sums[behind - 1] - before)[groups] * number / counts[groups]
        middles = self.bytes / -2
        middles += sums  # in place: there may be a million
        found = middles.searchsorted(shares)
        tasks = _distinct(np.clip(found, first[groups], behind[groups]))
        tasks = tasks[tasks < count]
        begins = _distinct(np.sort(np.append(tasks, firsts_and_lasts(self.owners)[0])))
        last = np.append(begins[1:], count) - 1
        parts = np.stack((self.owners[begins], self.starts[begins], self.ends[last]), axis=1)
        return np.split(parts, begins.searchsorted(tasks[1:]))


def _distinct(numbers: Numbers) -> Numbers:
    return numbers[firsts_and_lasts(numbers)[0]]


def share_of(most: int) -> int:
    """Return the bytes to plan for a task of at most `most` bytes: its last piece may add some."""
    return max(math.floor(most * (_TASK_SHARE - 1) / _TASK_SHARE), 1)


def divided(
    ranges: Iterable[OffsetRange],
    limits: TaskLimits,
    pieces_of: Callable[[Sequence[OffsetRange]], Pieces],
) -> list[OffsetRange]:
    """Divide ranges as Kafka's source does: each part is a task. `pieces_of` tells their bytes."""
    parts = at_most(ranges, limits.max_records)
    if limits.max_bytes is not None:
        pieces = pieces_of(parts).of_bytes(limits.max_bytes)
        parts = [parts[n].between(*at) for n, *at in pieces.tolist()]
    return divide(parts, limits.min_partitions or 1)
