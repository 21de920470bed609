"""Decides how many records of each partition one micro-batch takes: pure arithmetic.

A limit of records is exact, a limit of bytes as exact as the sizes in the index. Shares are in
proportion to the backlogs. No partition waits forever: each gets at least one record, or its turn
when there is no room for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kmq_spark.datasource.streams.weighing import proportion

if TYPE_CHECKING:
    from kmq_storage.arrays import Numbers

#: The limit of a batch when no option gives one: a first start from `earliest` must not run out of
#: memory. It is some seconds of reading, of which Spark's own cost per batch is below a tenth.
BYTES_DEFAULT = 512 << 20

#: Estimates of what a partition's records weigh are corrected this often.
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one micro-batch; None for no limit."""

    records: int | None = None
    bytes: int | None = None
    #: While fewer records than this wait, no batch begins.
    least: int = 0


class Waiting(Protocol):
    """The waiting records as columns, a value per partition; each partition has at least one."""

    @property
    def records(self) -> Numbers:
        """How many records wait in each partition."""

    @property
    def about(self) -> Numbers:
        """Their estimated weight in bytes; it costs nothing."""

    def cut(self, records: Numbers) -> Waiting:
        """Keep only the first `records` of each partition."""

    def firsts(self) -> Numbers:
        """What the first record of each weighs."""

    def within(self, places: Numbers, budgets: Numbers) -> tuple[Numbers, Numbers]:
        """Return how many records of these partitions fit into their budgets, and their weight."""


def take(waiting: Waiting, limits: Limits, *, turn: int = 0) -> Numbers:
    """Return how many records of each partition come next; none while fewer than `least` wait.

    When there is no room for all, partitions take turns. `turn` has to grow by the number of taken
    records, as the sum of all positions does; so nothing has to be remembered.
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
        records = _admit(records, limits.records)
    if firsts is not None and limits.bytes is not None:
        records = _within_bytes(waiting.cut(records), firsts, limits.bytes)
    return records


def _admit(backlogs: Numbers, limit: int) -> Numbers:
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
    # Products beyond 64 bits wrap alike, so that their differences are right.
    remainders = sizes * np.int64(rest) - share * np.int64(total)
    most = np.argsort(-remainders, kind="stable")[: rest - int(share.sum())]
    share[most] += 1
    return share


def _from_turn(count: int, turn: int) -> Numbers:
    return np.roll(np.arange(count), -(turn % count))


def _served(places: Numbers, firsts: Numbers | None, limits: Limits) -> Numbers:
    """Return the first of these places whose first records fit together; at least one."""
    if limits.records is not None:
        places = places[: limits.records]
    if firsts is None or limits.bytes is None:
        return places
    fitting = np.cumsum(firsts[places]).searchsorted(limits.bytes, "right")
    return places[: max(int(fitting), 1)]


def _within_bytes(waiting: Waiting, firsts: Numbers, limit: int) -> Numbers:
    """Return as many records as the bytes allow; every partition has its first one."""
    taken, weights = np.ones(len(firsts), np.int64), firsts.copy()
    for _ in range(_ROUNDS):
        hungry = np.flatnonzero(taken < waiting.records)
        left = limit - int(weights.sum())
        if not len(hungry) or left <= 0:
            break
        about = np.maximum(waiting.about[hungry] - weights[hungry], 1)
        # The next round shares the room that is left where an estimate was too high.
        budgets = weights[hungry] + proportion(about, left, int(about.sum()))
        records, weight = waiting.within(hungry, budgets)
        taken[hungry] = np.maximum(records, 1)
        weights[hungry] = np.maximum(weight, firsts[hungry])
    return taken
