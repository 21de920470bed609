"""How many records of each partition one micro-batch takes: pure arithmetic.

A limit of records is met exactly while there is that much, one of bytes as nearly as the index
knows sizes. Shares follow the backlogs, and no partition waits for ever: each gets at least one
record, or its turn where there is no room for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kmq_spark.datasource.streams.weighing import proportion

if TYPE_CHECKING:
    from kmq_storage.arrays import Numbers

#: What a batch takes at most when no option limits it: a first start from `earliest` must not
#: run out of memory. Some seconds of reading; Spark's own cost per batch stays below a tenth of it.
BYTES_DEFAULT = 512 << 20

#: Estimates of what a partition's records weigh are corrected this often.
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one micro-batch may take: None has no limit."""

    records: int | None = None
    bytes: int | None = None
    #: Fewer records than this are left waiting.
    least: int = 0


class Waiting(Protocol):
    """The records that wait in partitions of which each has one at least: columns."""

    @property
    def records(self) -> Numbers:
        """How many there are in each."""

    @property
    def about(self) -> Numbers:
        """About what they weigh in bytes, at no cost."""

    def cut(self, records: Numbers) -> Waiting:
        """Only the first so many of each."""

    def firsts(self) -> Numbers:
        """What the first record of each weighs."""

    def within(self, places: Numbers, budgets: Numbers) -> tuple[Numbers, Numbers]:
        """How many in the partitions at these places weigh at most so much, and what they weigh."""


def take(waiting: Waiting, limits: Limits, *, turn: int = 0) -> Numbers:
    """How many records of each partition are next: none while they are fewer than the least.

    A turn that grows by the number of taken records, as the sum of all positions does, lets
    partitions take turns without any memory.
    """
    records = waiting.records
    taken = np.zeros(len(records), np.int64)
    if not len(records) or int(records.sum()) < limits.least:
        return taken
    firsts = None if limits.bytes is None else waiting.firsts()
    served = _served(_from_turn(len(records), turn), firsts, limits)
    if len(served) < len(records):
        taken[served] = 1
        return taken
    if limits.records is not None:
        records = admit(records, limits.records)
    if firsts is not None and limits.bytes is not None:
        records = _within_bytes(waiting.cut(records), firsts, limits.bytes)
    return records


def admit(backlogs: Numbers, limit: int) -> Numbers:
    """Share a limit, which has room for one of each, among backlogs that are not empty."""
    if int(backlogs.sum()) <= limit:
        return backlogs
    taken, large = np.ones(len(backlogs), np.int64), np.arange(len(backlogs))
    # A partition whose share is below one record gets one, from the shares of the others.
    while True:
        sizes = backlogs[large]
        rest, total = limit - (len(backlogs) - len(large)), int(sizes.sum())
        share = proportion(sizes, rest, total)
        if share.all():
            taken[large] = _largest_remainders(sizes, share, rest)
            return taken
        large = large[share > 0]


def _largest_remainders(sizes: Numbers, share: Numbers, rest: int) -> Numbers:
    """Round the shares down, and give what is left of `rest` to those that lost most."""
    total = int(sizes.sum())
    # Products that need more than 64 bits wrap alike, and the remainders fit again.
    remainders = sizes * np.int64(rest) - share * np.int64(total)
    most = np.argsort(-remainders, kind="stable")[: rest - int(share.sum())]
    share[most] += 1
    return share


def _from_turn(count: int, turn: int) -> Numbers:
    return np.roll(np.arange(count), -(turn % count))


def _served(places: Numbers, firsts: Numbers | None, limits: Limits) -> Numbers:
    """The places, in their order, whose first records have room together: at least one."""
    if limits.records is not None:
        places = places[: limits.records]
    if firsts is None or limits.bytes is None:
        return places
    fitting = np.cumsum(firsts[places]).searchsorted(limits.bytes, "right")
    return places[: max(int(fitting), 1)]


def _within_bytes(waiting: Waiting, firsts: Numbers, limit: int) -> Numbers:
    """As many records as the bytes allow; every partition has its first one."""
    taken, weights = np.ones(len(firsts), np.int64), firsts.copy()
    for _ in range(_ROUNDS):
        hungry = np.flatnonzero(taken < waiting.records)
        left = limit - int(weights.sum())
        if not len(hungry) or left <= 0:
            break
        about = np.maximum(waiting.about[hungry] - weights[hungry], 1)
        # What is estimated too high comes back, and is shared in the next round.
        budgets = weights[hungry] + proportion(about, left, int(about.sum()))
        records, weight = waiting.within(hungry, budgets)
        taken[hungry] = np.maximum(records, 1)
        weights[hungry] = np.maximum(weight, firsts[hungry])
    return taken
