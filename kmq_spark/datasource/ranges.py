"""Offset ranges of partitions, and how many tasks read them: pure arithmetic.

`divide` follows the rules of Spark's KafkaOffsetRangeCalculator for `minPartitions`; without that
option `task_count` and `cut` balance tasks by bytes on the borders of record batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Starting a task costs as much as reading some MiB, so smaller partitions share one.
TASK_BYTES_MIN = 4 << 20

#: Above this a task is split, though its partition is only one.
TASK_BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class OffsetRange:
    """The records of one partition from start up to, not including, end."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many records the range holds; never negative."""
        return max(self.end - self.start, 0)


def divide(ranges: Iterable[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Split large ranges until there are about `min_partitions`; small ones stay whole.

    Small ranges are set aside before the rest is shared out, so that they don't dilute it.
    """
    filled = [r for r in ranges if r.size]
    if len(filled) >= min_partitions:
        return filled
    total = sum(r.size for r in filled)
    whole = {r for r in filled if _parts(r.size, total, min_partitions) == 1}
    large_total = total - sum(r.size for r in whole)
    large_parts = max(min_partitions - len(whole), 1)
    divided: list[OffsetRange] = []
    for each in filled:
        parts = 1 if each in whole else _parts(each.size, large_total, large_parts)
        divided += _split(each, parts)
    return divided


def _parts(size: int, total: int, parts: int) -> int:
    # Rounds half up as the JVM does; Python's round() would go to the even neighbour.
    return max(math.floor(size / total * parts + 0.5), 1)


def _split(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    cuts = [whole.start]
    for left in range(min(parts, whole.size), 0, -1):
        cuts.append(cuts[-1] + (whole.end - cuts[-1]) // left)
    pieces = [replace(whole, start=a, end=b) for a, b in itertools.pairwise(cuts)]
    return [piece for piece in pieces if piece.size]


def task_count(total_bytes: int, cores: int) -> int:
    """How many tasks a read deserves: one when tiny, then one per core, then by size."""
    by_cores = min(total_bytes // TASK_BYTES_MIN, cores)
    return max(by_cores, math.ceil(total_bytes / TASK_BYTES_MAX), 1)


def cut(sizes: npt.ArrayLike, tasks: int) -> list[tuple[int, int]]:
    """Cut a sequence of sizes into at most `tasks` runs of about equal sum, as index pairs.

    An item goes to the task in whose share its middle lies: no run is off by more than one item.
    """
    weights = np.asarray(sizes, dtype=np.float64)
    if not len(weights):
        return []
    middles = np.cumsum(weights) - weights / 2
    owners = (middles * tasks / max(float(weights.sum()), 1.0)).astype(np.int64)
    owners = np.minimum(owners, tasks - 1)
    begins = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(weights)]
    return list(itertools.pairwise(begins))
