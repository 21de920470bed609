"""Offset ranges of partitions, and how many tasks read them: pure arithmetic.

`at_most` and then `divide` follow the rules of Spark's KafkaOffsetRangeCalculator for
`maxRecordsPerPartition` and `minPartitions`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

#: Starting a task costs as much as reading some MiB, so smaller ranges share a task.
TASK_BYTES_MIN = 4 << 20

#: A larger task is split, even if it reads one partition only; Spark splits files so, too.
TASK_BYTES_SPLIT = 128 << 20

#: But not into more tasks per core than this, which are enough to even out slow ones. Beyond that,
#: tasks grow instead, up to `TASK_BYTES_MAX`, since each task costs a start.
TASKS_PER_CORE = 4
TASK_BYTES_MAX = 512 << 20


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

    def between(self, start: int, end: int) -> OffsetRange:
        """Other records of the same partition."""
        return OffsetRange(self.topic, self.partition, start, end)


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
    pieces = [whole.between(a, b) for a, b in itertools.pairwise(cuts)]
    return [piece for piece in pieces if piece.size]


def at_most(ranges: Iterable[OffsetRange], max_records: int | None) -> list[OffsetRange]:
    """Split ranges of more records than a task may have, as evenly as they go."""
    return [
        piece
        for each in ranges
        if each.size
        for piece in _split(each, math.ceil(each.size / (max_records or each.size)))
    ]


def task_count(total_bytes: int, cores: int, largest: int | None = None) -> int:
    """Return how many tasks a read has: one when it is tiny, then one per core, then by size.

    `largest`: the most bytes of a task, if an option limits them.
    """
    by_cores = min(total_bytes // TASK_BYTES_MIN, cores)
    by_size = math.ceil(total_bytes / (largest or TASK_BYTES_MAX))
    if largest is None:
        split = math.ceil(total_bytes / TASK_BYTES_SPLIT)
        by_size = max(by_size, min(split, TASKS_PER_CORE * cores))
    return max(by_cores, by_size, 1)
