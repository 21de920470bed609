"""Conversion between runs of records and arrays of their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from kmq_storage.arrays import Numbers
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import Run


def runs_of(key: Key, offsets: Numbers, counts: Numbers) -> Iterable[Run]:
    """Ascending offsets, with the delivery number of each, as runs."""
    if not len(offsets):
        return
    breaks = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(counts) != 0)) + 1
    firsts = [0, *breaks.tolist(), len(offsets)]
    for low, high in pairwise(firsts):
        yield Run(*key, int(offsets[low]), high - low, int(counts[low]))


def by_partition(runs: Iterable[Run]) -> Iterator[tuple[Key, list[Run]]]:
    """Runs grouped by partition, where neighbours have the same one; the order stays."""
    return ((key, list(some)) for key, some in groupby(runs, key=itemgetter(0, 1)))


def expanded(runs: Sequence[Run]) -> tuple[Numbers, Numbers]:
    """The offset and the delivery number of each record of some runs of a partition."""
    firsts, rows, counts = np.array([run[2:] for run in runs], np.int64).T
    behind = np.cumsum(rows)
    steps = np.arange(behind[-1]) - np.repeat(behind - rows, rows)
    return np.repeat(firsts, rows) + steps, np.repeat(counts, rows)
