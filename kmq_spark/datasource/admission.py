"""How many records of each partition one micro-batch takes: pure arithmetic.

The sum is exactly the limit while there is that much, shares follow the backlogs, and no
partition waits for ever: each gets at least one record, or its turn when there are too few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Key = TypeVar("_Key")


def admit(backlogs: Mapping[_Key, int], limit: int, *, turn: int = 0) -> dict[_Key, int]:
    """Share a limit among backlogs; `turn` says who begins when not everybody gets a record.

    A turn that grows by the number of admitted records, as the sum of all positions does, lets
    partitions take turns without any memory.
    """
    waiting = {key: size for key, size in backlogs.items() if size > 0}
    taken = dict.fromkeys(backlogs, 0)
    if sum(waiting.values()) <= limit:
        return taken | waiting
    if limit < len(waiting):
        return taken | _take_turns(list(waiting), limit, turn)
    return taken | _proportional(waiting, limit)


def _take_turns(keys: list[_Key], limit: int, turn: int) -> dict[_Key, int]:
    return {keys[(turn + step) % len(keys)]: 1 for step in range(limit)}


def _proportional(waiting: dict[_Key, int], limit: int) -> dict[_Key, int]:
    small: dict[_Key, int] = {}
    large = dict(waiting)
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
