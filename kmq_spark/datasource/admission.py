"""How many records of each partition one micro-batch takes: pure arithmetic.

A limit of records is met exactly while there is that much, one of bytes as nearly as the index
knows sizes. Shares follow the backlogs, and no partition waits for ever: each gets at least one
record, or its turn where there is no room for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

_Key = TypeVar("_Key")

#: What a batch takes at most when no option limits it: a first start from `earliest` must not
#: die of memory. Some seconds of reading; Spark's own price per batch stays below a tenth of it.
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
    """The records of one partition that wait to be read."""

    @property
    def records(self) -> int:
        """How many there are."""

    @property
    def about(self) -> int:
        """About what they weigh in bytes, at no cost."""

    def first(self) -> int:
        """What the first of them weighs."""

    def within(self, budget: int) -> tuple[int, int]:
        """How many of them weigh at most so much, and what these weigh."""


def take(waiting: Mapping[_Key, Waiting], limits: Limits, *, turn: int = 0) -> dict[_Key, int]:
    """How many records of each partition are next: none while they are fewer than the least.

    A turn that grows by the number of taken records, as the sum of all positions does, lets
    partitions take turns without any memory.
    """
    filled = {key: each for key, each in waiting.items() if each.records > 0}
    records = {key: each.records for key, each in filled.items()}
    taken = dict.fromkeys(waiting, 0)
    if not filled or sum(records.values()) < limits.least:
        return taken
    firsts = {} if limits.bytes is None else {key: each.first() for key, each in filled.items()}
    served = _served(_from_turn(list(filled), turn), firsts, limits)
    if len(served) < len(filled):
        return taken | dict.fromkeys(served, 1)
    if limits.records is not None:
        records = admit(records, limits.records)
    if limits.bytes is not None:
        records = _within_bytes(filled, records, firsts, limits.bytes)
    return taken | records


def admit(backlogs: Mapping[_Key, int], limit: int) -> dict[_Key, int]:
    """Share a limit, which has room for one of each, among backlogs that are not empty."""
    if sum(backlogs.values()) <= limit:
        return dict(backlogs)
    small: dict[_Key, int] = {}
    large = dict(backlogs)
    # Whoever's share is below one record gets one; that shrinks the shares of the others.
    while True:
        rest, total = limit - len(small), sum(large.values())
        below = [key for key, size in large.items() if rest * size < total]
        if not below:
            return small | _largest_remainders(large, rest, total)
        for key in below:
            small[key] = 1
            del large[key]


def _largest_remainders(large: dict[_Key, int], rest: int, total: int) -> dict[_Key, int]:
    taken = {key: rest * size // total for key, size in large.items()}
    by_remainder = sorted(large, key=lambda key: rest * large[key] % total, reverse=True)
    for key in by_remainder[: rest - sum(taken.values())]:
        taken[key] += 1
    return taken


def _from_turn(keys: list[_Key], turn: int) -> list[_Key]:
    begin = turn % len(keys)
    return keys[begin:] + keys[:begin]


def _served(keys: list[_Key], firsts: Mapping[_Key, int], limits: Limits) -> list[_Key]:
    """The keys, in their order, whose first records have room together: at least one."""
    if limits.records is not None:
        keys = keys[: limits.records]
    if limits.bytes is None:
        return keys
    room = limits.bytes
    for number, key in enumerate(keys):
        room -= firsts[key]
        if room < 0:
            return keys[: max(number, 1)]
    return keys


def _within_bytes(
    waiting: Mapping[_Key, Waiting],
    wanted: Mapping[_Key, int],
    firsts: Mapping[_Key, int],
    limit: int,
) -> dict[_Key, int]:
    """As many of the wanted records as the bytes allow; every partition has its first one."""
    taken, weights = dict.fromkeys(wanted, 1), dict(firsts)
    for _ in range(_ROUNDS):
        hungry = [key for key in wanted if taken[key] < wanted[key]]
        left = limit - sum(weights.values())
        if not hungry or left <= 0:
            break
        about = {key: _about(waiting[key], wanted[key], weights[key]) for key in hungry}
        total = sum(about.values())
        for key in hungry:
            # What is estimated too high comes back, and is shared in the next round.
            budget = weights[key] + left * about[key] // total
            records, weight = waiting[key].within(budget)
            if records > wanted[key]:
                weight = weight * wanted[key] // records
            taken[key] = min(max(records, 1), wanted[key])
            weights[key] = max(weight, firsts[key])
    return taken


def _about(waiting: Waiting, wanted: int, weight: int) -> int:
    return max(waiting.about * wanted // waiting.records - weight, 1)
