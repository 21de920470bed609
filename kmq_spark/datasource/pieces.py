"""The stored bytes of offset ranges in small pieces, and cutting them into tasks: arithmetic.

All ranges of a read are in the same arrays: there may be ten thousand partitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kmq_storage.log.spread import Spread

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.int64]

    #: A row for each: which range, and which of its offsets, from a start up to an end.
    Parts: TypeAlias = npt.NDArray[np.int64]

#: Larger pieces than this share of a task are divided, so no task is off by more than that.
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
        """The pieces of ranges, cut to their bounds; a piece that is cut counts in proportion."""
        starts = np.maximum(spread.bases, low[spread.owners])
        ends = np.minimum(spread.ends, high[spread.owners])
        read, cut = spread.bytes.copy(), (starts != spread.bases) | (ends != spread.ends)
        share = (ends[cut] - starts[cut]) / (spread.ends[cut] - spread.bases[cut])
        read[cut] = (read[cut] * share).astype(np.int64)
        return cls(spread.owners, starts, ends, read)

    @classmethod
    def joined(cls, parts: Sequence[Pieces], counts: Sequence[int]) -> Pieces:
        """Pieces of several reads that have so many ranges each, numbered through, as one."""
        if not parts:
            return cls(*(np.empty(0, np.int64) for _ in range(4)))
        firsts = np.cumsum([0, *counts[:-1]])
        owners = [part.owners + first for part, first in zip(parts, firsts, strict=True)]
        rest = ([getattr(part, name) for part in parts] for name in ("starts", "ends", "bytes"))
        return cls(*map(np.concatenate, (owners, *rest)))

    @property
    def total(self) -> int:
        """The bytes of all pieces."""
        return int(self.bytes.sum())

    def balanced(self, tasks: int) -> list[Parts]:
        """At most so many runs of about equal bytes, which may reach over several ranges.

        A run exceeds its share by at most an eighth, unless a record does.
        """
        fine = self._finer(self.total // (tasks * _TASK_SHARE))
        groups = np.zeros(len(fine.owners), np.int64)
        return fine._runs(groups, np.array([tasks]))

    def of_bytes(self, most: int) -> Parts:
        """Parts of at most so many bytes, each in one range, unless a record has more."""
        if not len(self.owners):
            return np.empty((0, 3), np.int64)
        totals = np.bincount(self.owners, self.bytes)
        counts = np.maximum(np.ceil(totals / share_of(most)), 1).astype(np.int64)
        fine = self._finer(most // (2 * _TASK_SHARE))
        return np.concatenate(fine._runs(fine.owners, counts))

    def _finer(self, largest: int) -> Pieces:
        """The same bytes in pieces of at most about this size: what a large file has is divided."""
        parts = np.maximum(-(-self.bytes // max(largest, 1)), 1)
        parts = np.minimum(parts, np.maximum(self.ends - self.starts, 1))
        if (parts == 1).all():
            return self
        starts, widths = np.repeat(self.starts, parts), np.repeat(self.ends - self.starts, parts)
        counts = np.repeat(parts, parts)
        number = np.arange(len(counts)) - np.repeat(np.cumsum(parts) - parts, parts)
        return Pieces(
            np.repeat(self.owners, parts),
            starts + widths * number // counts,
            starts + widths * (number + 1) // counts,
            np.repeat(self.bytes, parts) // counts,
        )

    def _runs(self, groups: Numbers, counts: Numbers) -> list[Parts]:
        """The parts of each task, when each group of pieces is cut into so many tasks.

        A piece goes to the task in whose share of its group its middle lies.
        """
        if not len(groups):
            return []
        totals = np.maximum(np.bincount(groups, self.bytes), 1)
        before = np.cumsum(self.bytes) - (np.cumsum(totals) - totals)[groups]
        place = (before - self.bytes / 2) / totals[groups]
        within = np.clip((place * counts[groups]).astype(np.int64), 0, counts[groups] - 1)
        tasks = (np.cumsum(counts) - counts)[groups] + within
        begins, ends = _firsts(tasks, self.owners), _lasts(tasks, self.owners)
        parts = np.stack((self.owners[begins], self.starts[begins], self.ends[ends]), axis=1)
        return np.split(parts, _firsts(tasks[begins])[1:])


def _firsts(*columns: Numbers) -> Numbers:
    """Where a run of items begins that are equal in these columns."""
    return np.concatenate([[0], _lasts(*columns)[:-1] + 1])


def _lasts(*columns: Numbers) -> Numbers:
    """The last item of each of these runs."""
    new = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
    return np.concatenate([np.flatnonzero(new), [len(columns[0]) - 1]])


def share_of(most: int) -> int:
    """The share of a task that may have so many bytes: what its last piece may add is kept free."""
    return max(math.floor(most * (_TASK_SHARE - 1) / _TASK_SHARE), 1)
