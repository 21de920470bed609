"""Which rows of the manifest's pages still count, for a whole page at once.

Readers look up a few offsets; who wants every row goes through the pages one after another and
leaves out what newer rows replaced and what was trimmed, cut out or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kmq_storage.arrays import Mask, Numbers
from kmq_storage.format.manifest import Key, Page
from kmq_storage.log.offset_index import Gap
from kmq_storage.log.state import StoreState


@dataclass(frozen=True, slots=True)
class Cover:
    """What decides which older rows of a partition still count."""

    topic: str
    start: int
    #: Offsets [base, end) whose rows are in memory, ascending and apart.
    newer: tuple[tuple[int, int], ...]
    gaps: tuple[Gap, ...]

    def keeps(self, bases: Numbers, ends: Numbers) -> Mask:
        """Which rows with offsets in [base, end) count, as a checkpoint would keep them."""
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
    """The rows of a page that count, as their places in it, by partition."""
    for key, (low, high) in page.spans.items():
        cover = known.get(key)
        if cover is not None:
            kept = cover.keeps(page.bases[low:high], page.ends[low:high])
            yield key, cover, low + np.flatnonzero(kept)
