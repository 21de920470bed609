"""Reporting lost messages to the readers of queues, so that none is skipped silently.

A gap only tells which offsets were lost, so any queue may have had messages there. A reader of a
queue can't seek behind a gap. So it gets an error once, and its next call goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import numpy as np

from kmq_storage.arrays import Numbers
from kmq_storage.errors import DataLossError
from kmq_storage.format.plain_columns import number_column
from kmq_storage.keyed.index import QueueIndex
from kmq_storage.keyed.many import Asked, QueueRows
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.topic_state import Topic

_LOGGER = logging.getLogger(__name__)
#: Above all offsets.
_NEVER = np.iinfo(np.int64).max


class Losses:
    """The queues of a topic whose readers were told of its gaps; for one thread at a time."""

    def __init__(self) -> None:
        self._gaps: set[int] = set()
        self._told: set[bytes] = set()

    def check(self, index: QueueIndex, topic: Topic, queue: bytes, first: int, most: int) -> None:
        """DataLossError, once per queue, when a gap is among these messages or just before them.

        If a queue has fewer messages than `most`, a gap behind its last message counts, too.
        """
        if most and topic.index(PARTITION).gaps:
            self.check_between(topic, queue, *_span(index, topic, queue, first, most))

    def check_many(
        self, index: QueueIndex, topic: Topic, asked: Asked, parts: Sequence[QueueRows]
    ) -> None:
        """As `check`, for many queues, without looking up each."""
        gaps = sorted(topic.index(PARTITION).gaps, key=lambda gap: gap.start)
        if not (asked.most and gaps):
            return
        borders = np.array([(gap.start, gap.end) for gap in gaps])
        starts, ends = borders.T
        lows, highs = _spans(index, topic, asked, parts, borders)
        nearest = ends.searchsorted(lows, "right")  # the first gap that ends behind each
        met = np.flatnonzero(np.append(starts, _NEVER)[nearest] < highs)
        queues = asked.names.take(number_column(met)).to_pylist()
        self._tell(topic, zip(queues, map(gaps.__getitem__, nearest[met].tolist()), strict=True))

    def check_between(self, topic: Topic, queue: bytes, low: int, high: int) -> None:
        """As `check`, for a gap between two offsets."""
        if topic.index(PARTITION).gaps:
            found = topic.index(PARTITION).gaps_between(low, high)
            self._tell(topic, ((queue, gap) for gap in found))

    def _tell(self, topic: Topic, met: Iterable[tuple[bytes, Gap]]) -> None:
        begins = {gap.start for gap in topic.index(PARTITION).gaps}
        if not begins <= self._gaps:
            self._told.clear()
        self._gaps = begins
        new = [(queue, gap) for queue, gap in met if queue not in self._told]
        self._told.update(queue for queue, _ in new)
        if new:
            raise _loss(topic, *new[0])


def _span(index: QueueIndex, topic: Topic, queue: bytes, first: int, most: int) -> tuple[int, int]:
    """The offsets from the message before index `first` up to the last one wanted."""
    start, behind = index.span(queue)
    first = min(max(first, start), behind)
    before = int(first > start)
    in_runs, loose = index.places(queue, first - before, most + before)
    runs = [rows.run.offsets(rows.first, rows.behind) for rows in in_runs]
    offsets = np.concatenate([*runs, loose])
    part = topic.partition(PARTITION)
    low = int(offsets[0]) if before else max(index.began(queue), part.start)
    high = int(offsets[-1]) if len(offsets) == most + before else part.end
    return low, high


def _spans(
    index: QueueIndex, topic: Topic, asked: Asked, parts: Sequence[QueueRows], borders: Numbers
) -> tuple[Numbers, Numbers]:
    """As `_span`, for many queues; exact only to the next of the borders."""
    part, order = topic.partition(PARTITION), asked.order()
    sorted_ones = Asked(asked.names.take(number_column(order)), asked.firsts[order], asked.most)
    lows, highs = sorted_ones.reach(parts, borders)
    began = np.maximum(index.all_began(sorted_ones.names), part.start)
    spans = np.empty((2, len(order)), np.int64)
    spans[:, order] = np.where(lows < 0, began, lows), np.where(highs < 0, part.end, highs)
    return spans[0], spans[1]


def _loss(topic: Topic, queue: bytes, gap: Gap) -> DataLossError:
    error = DataLossError(
        f"messages of queue {queue!r} in {topic.name} may be lost: offsets {gap.start} to "
        f"{gap.end - 1} of the topic are ({gap.reason}); the queue goes on behind them, with the "
        "next call",
        queue=queue,
        topic=topic.name,
        partition=PARTITION,
        start=gap.start,
        end=gap.end,
    )
    _LOGGER.warning("%s", error)
    return error
