"""Cuts offset ranges into tasks of about equal bytes, by way of small pieces: pure arithmetic.

All ranges of a read are in the same arrays: there may be ten thousand partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning.ranges import OffsetRange, at_most, divide
from kmq_storage.log.index.spread import Spread, firsts_and_lasts

if TYPE_CHECKING:
    from kmq_storage.arrays import Mask, Numbers

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
    #: The bytes of the whole row that a piece is of; 0 if it is a stored batch, or a part of one.
    rows: Numbers

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
        rows = read.copy()
        read[cut] = (read[cut] * share).astype(np.int64)
        return cls(spread.owners, starts, ends, read, rows)

    @classmethod
    def joined(cls, parts: Sequence[Pieces], counts: Sequence[int]) -> Pieces:
        """Join pieces of several reads; the ranges of all reads are numbered consecutively."""
        if not parts:
            return cls(*(np.empty(0, np.int64) for _ in range(5)))
        if len(parts) == 1:
            return parts[0]
        firsts = np.cumsum([0, *counts[:-1]])
        owners = [part.owners + first for part, first in zip(parts, firsts, strict=True)]
        rest = ([getattr(part, name) for part in parts] for name in _NAMES[1:])
        return cls(*map(np.concatenate, (owners, *rest)))

    @property
    def total(self) -> int:
        """The bytes of all pieces."""
        return int(self.bytes.sum())

    def span(self, place: int) -> tuple[int, int, int]:
        """The number of a piece's range, and its offsets."""
        return int(self.owners[place]), int(self.starts[place]), int(self.ends[place])

    def only(self, wanted: Mask | Numbers) -> Pieces:
        """Some of the pieces."""
        return Pieces(*(getattr(self, name)[wanted] for name in _NAMES))

    def cut_off(self, larger: int) -> Numbers:
        """Which pieces are of rows of more bytes than this that a bound cuts, largest first."""
        return self._largest(np.flatnonzero(self.rows > self.bytes), larger)

    def crossed(self, tasks: int, larger: int) -> Numbers:
        """Which pieces of more bytes than this so many tasks would divide, largest first."""
        return self._crossed(np.zeros(1, np.int64), np.array([tasks]), larger)

    def crossed_by_parts(self, most: int) -> Numbers:
        """Which pieces `of_bytes` would divide, largest first."""
        if not len(self.owners):
            return self.owners
        first, _ = firsts_and_lasts(self.owners)
        return self._crossed(first, self._counts(most)[self.owners[first]], finest(most))

    def _crossed(self, first: Numbers, counts: Numbers, larger: int) -> Numbers:
        if not len(self.owners):
            return self.owners
        shares, sums = self._shares(first, counts)[0], np.cumsum(self.bytes)
        at = np.minimum(sums.searchsorted(shares, "right"), len(sums) - 1)
        return self._largest(_distinct(at[shares > (sums - self.bytes)[at]]), larger)

    def _largest(self, places: Numbers, larger: int) -> Numbers:
        sizes = self.rows[places]
        return places[np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes > larger)]]

    def with_batches(self, batches: Mapping[int, Pieces]) -> Pieces:
        """Replace some pieces, which are given by their places, by those of their batches."""
        if not batches:
            return self
        kept = np.delete(np.arange(len(self.owners)), list(batches))
        at = [kept, *(np.full(len(each.owners), place) for place, each in batches.items())]
        parts = [self.only(kept), *batches.values()]
        order = np.argsort(np.concatenate(at), kind="stable")
        return Pieces.joined(parts, [0] * len(parts)).only(order)

    def share(self, tasks: int) -> int:
        """The bytes of a piece that is small enough for each of so many tasks."""
        return self.total // (tasks * _TASK_SHARE)

    def balanced(self, tasks: int, *, whole: bool = True) -> list[Parts]:
        """Cut into at most `tasks` runs of about equal bytes; a run may have several ranges.

        A run exceeds its share by at most an eighth, or by one batch: batches that are no larger
        than a share stay `whole`.
        """
        fine = self._finer(self.share(tasks), -(-self.total // tasks) * whole)
        return fine._runs(np.zeros(1, np.int64), np.array([tasks]))

    def of_bytes(self, most: int) -> Parts:
        """Cut into parts of at most `most` bytes, each in one range; one record may be larger."""
        if not len(self.owners):
            return np.empty((0, 3), np.int64)
        counts = self._counts(most)
        fine = self._finer(finest(most))
        first, _ = firsts_and_lasts(fine.owners)
        return np.concatenate(fine._runs(first, counts[fine.owners[first]]))

    def _counts(self, most: int) -> Numbers:
        """How many parts `of_bytes` makes of each range."""
        totals = np.bincount(self.owners, self.bytes)
        return np.maximum(np.ceil(totals / share_of(most)), 1).astype(np.int64)

    def _finer(self, largest: int, whole: int = 0) -> Pieces:
        """Divide pieces larger than about this many bytes, but no batches of up to `whole`."""
        largest = max(largest, 1)
        if np.max(self.bytes, initial=0) <= largest:
            return self
        parts = np.maximum(-(-self.bytes // largest), 1)
        parts = np.minimum(parts, np.maximum(self.ends - self.starts, 1))
        parts[(self.rows == 0) & (self.bytes <= whole)] = 1
        starts, widths = np.repeat(self.starts, parts), np.repeat(self.ends - self.starts, parts)
        counts = np.repeat(parts, parts)
        number = np.arange(len(counts)) - np.repeat(np.cumsum(parts) - parts, parts)
        return Pieces(
            np.repeat(self.owners, parts),
            starts + widths * number // counts,
            starts + widths * (number + 1) // counts,
            np.repeat(self.bytes, parts) // counts,
            np.repeat(self.rows, parts),
        )

    def _runs(self, first: Numbers, counts: Numbers) -> list[Parts]:
        """Cut each group of pieces into tasks, and return the parts of each task.

        `first` has the first piece of each group, `counts` its number of tasks. Tasks have equal
        shares of their group's bytes. A piece goes to the task in whose share its middle is.
        """
        count = len(self.owners)
        if not count:
            return []
        shares, groups = self._shares(first, counts)
        behind = np.append(first[1:], count)
        middles = self.bytes / -2
        middles += np.cumsum(self.bytes)  # in place: there may be a million
        found = middles.searchsorted(shares)
        tasks = _distinct(np.clip(found, first[groups], behind[groups]))
        tasks = tasks[tasks < count]
        begins = _distinct(np.sort(np.append(tasks, firsts_and_lasts(self.owners)[0])))
        last = np.append(begins[1:], count) - 1
        parts = np.stack((self.owners[begins], self.starts[begins], self.ends[last]), axis=1)
        return np.split(parts, begins.searchsorted(tasks[1:]))

    def _shares(self, first: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
        """Before how many bytes of all pieces each task begins, and the number of its group."""
        behind, sums = np.append(first[1:], len(self.owners)), np.cumsum(self.bytes)
        before = sums[first] - self.bytes[first]
        groups = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(groups)) - (np.cumsum(counts) - counts)[groups]
        whole = (sums[behind - 1] - before)[groups]
        return before[groups] + whole * number / counts[groups], groups


#: The columns of pieces.
_NAMES = tuple(each.name for each in fields(Pieces))


def _distinct(numbers: Numbers) -> Numbers:
    return numbers[firsts_and_lasts(numbers)[0]]


def finest(most: int) -> int:
    """Return how large a piece may be that a task of at most `most` bytes gets whole."""
    return most // (2 * _TASK_SHARE)


def share_of(most: int) -> int:
    """Return the bytes to plan for a task of at most `most` bytes: its last piece may add some."""
    return max(math.floor(most * (_TASK_SHARE - 1) / _TASK_SHARE), 1)


def divided(
    ranges: Iterable[OffsetRange],
    limits: TaskLimits,
    pieces_of: Callable[[Sequence[OffsetRange], int], Pieces],
) -> list[OffsetRange]:
    """Divide ranges as Kafka's source does: each part is a task. `pieces_of` tells their bytes."""
    parts = at_most(ranges, limits.max_records)
    if limits.max_bytes is not None:
        pieces = pieces_of(parts, limits.max_bytes).of_bytes(limits.max_bytes)
        parts = [parts[n].between(*at) for n, *at in pieces.tolist()]
    return divide(parts, limits.min_partitions or 1)
