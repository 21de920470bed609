"""Finds how far a number of bytes reaches in many partitions at once, by their index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kmq_storage.log.index.spread import Spread

if TYPE_CHECKING:
    from kmq_storage.arrays import Mask, Numbers

_BEYOND_64_BITS = 1 << 63


def proportion(part: Numbers | int, of: Numbers | int, whole: Numbers | int) -> Numbers:
    """`part * of // whole`, rounded down exactly also where the product needs more than 64 bits."""
    largest = int(np.max(part, initial=0)) * int(np.max(of, initial=0))
    kind = np.int64 if largest < _BEYOND_64_BITS else object
    product = np.asarray(part, kind) * np.asarray(of, kind)
    return np.asarray(product // np.asarray(whole, kind)).astype(np.int64)


@dataclass(frozen=True)
class Weighed:
    """The index rows of some offset ranges, cut to these ranges, and running sums of weights."""

    starts: Numbers
    lows: Numbers
    highs: Numbers
    #: The weight of all rows before each, and the total; a row that is cut counts in proportion.
    sums: Numbers
    #: Of each range, its first row and the one behind its last.
    first: Numbers
    behind: Numbers

    @classmethod
    def of(cls, spread: Spread, starts: Numbers, ends: Numbers) -> Weighed:
        """Weigh ranges by a spread, whose first and last rows may reach beyond them."""
        lows = np.maximum(spread.bases, starts[spread.owners])
        highs = np.minimum(spread.ends, ends[spread.owners])
        shares = (highs - lows) / (spread.ends - spread.bases)
        sums = np.concatenate([[0], np.cumsum((spread.weights * shares).astype(np.int64))])
        borders = spread.owners.searchsorted(np.arange(len(starts) + 1))
        return cls(starts, lows, highs, sums, borders[:-1], borders[1:])

    @property
    def total(self) -> int:
        """The weight of all rows."""
        return int(self.sums[-1])

    def firsts(self) -> Numbers:
        """About what the first record of each range weighs; 0 where there is none."""
        found = np.zeros(len(self.starts), np.int64)
        some = np.flatnonzero(self.first < self.behind)
        some = some[self.lows[self.first[some]] == self.starts[some]]
        row = self.first[some]
        found[some] = (self.sums[row + 1] - self.sums[row]) // (self.highs[row] - self.lows[row])
        return found

    def within(self, places: Numbers, budgets: Numbers) -> tuple[Numbers, Numbers, Mask]:
        """Return up to which offset each of these ranges fits its budget, and what that weighs.

        The third column tells whether the whole range fits.
        """
        before, behind = self.sums[self.first[places]], self.behind[places]
        most = before + np.minimum(budgets, self.total)
        stop = np.minimum(self.sums[1:].searchsorted(most, "right"), behind)
        reached, used = self._end_before(places, stop), self.sums[stop] - before
        cut = np.flatnonzero(stop < behind)
        row = stop[cut]
        span, weight = self.highs[row] - self.lows[row], self.sums[row + 1] - self.sums[row]
        more = proportion(budgets[cut] - used[cut], span, weight)
        reached[cut] = self.lows[row] + more
        used[cut] += proportion(weight, more, span)
        return reached, used, stop == behind

    def _end_before(self, places: Numbers, stop: Numbers) -> Numbers:
        """Return where the row before each `stop` ends; the range's start if it has none."""
        reached = self.starts[places]
        some = stop > self.first[places]
        reached[some] = self.highs[stop[some] - 1]
        return reached
