"""The rows of the manifest's pages that still count, found for a whole page at once.

This is for going through all rows of a store, page by page. It leaves out rows that newer rows
replaced, and rows that were trimmed, cut out or deleted. To look up a few offsets, use
`offset_index`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.format.manifest import Key, Page
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.store_state import StoreState


@dataclass(frozen=True, slots=True)
class Cover:
    """The facts that decide which rows in pages still count for a partition."""

    topic: str
    start: int
    #: Ranges [base, end) of offsets whose rows are in memory, ascending and disjoint.
    newer: tuple[tuple[int, int], ...]
    gaps: tuple[Gap, ...]

    def keeps(self, bases: Numbers, ends: Numbers) -> Mask:
        """A mask of the rows with offsets [base, end) that count, as a checkpoint keeps them."""
        kept: Mask = ends > self.start
        begins = np.maximum(bases, self.start)
        for gap in self.gaps:
            kept &= ~((gap.start <= begins) & (ends <= gap.end))
        if self.newer:
            low, high = np.array(self.newer).T
            first = np.minimum(np.searchsorted(high, bases, "right"), len(high) - 1)
            kept &= ~((low[first] < ends) & (bases < high[first]))
        return kept


def covers(state: StoreState) -> dict[Key, Cover]:
    """The covers of all partitions of a reader's state, sorted by key."""
    found = {}
    for topic in sorted(state.topics.values(), key=lambda topic: topic.id):
        for number, part in enumerate(topic.parts):
            index = topic.index(number)
            newer, gaps = index.newer_spans(), tuple(index.gaps)
            found[topic.id, number] = Cover(topic.name, part.start, newer, gaps)
    return found


def live_spans(page: Page, known: Mapping[Key, Cover]) -> Iterator[tuple[Key, Cover, Numbers]]:
    """The indexes of the rows of a page that count, by partition."""
    for key, (low, high) in page.spans.items():
        cover = known.get(key)
        if cover is not None:
            kept = cover.keeps(page.bases[low:high], page.ends[low:high])
            yield key, cover, low + np.flatnonzero(kept)
