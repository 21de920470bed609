"""Reporting lost messages to the readers of queues, so that none is skipped silently.

A gap only tells which offsets were lost, so any queue may have had messages there. A reader of a
queue can't seek behind a gap. So it gets an error once, and its next call goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from kmq_storage.errors import DataLossError
from kmq_storage.keyed.index import QueueIndex
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.topic_state import Topic

_LOGGER = logging.getLogger(__name__)


class Losses:
    """The queues of a topic whose readers were told of its gaps; for one thread at a time."""

    def __init__(self) -> None:
        self._gaps: set[int] = set()
        self._told: set[bytes] = set()

    def check(
        self, index: QueueIndex, topic: Topic, asked: Iterable[tuple[bytes, int]], most: int
    ) -> None:
        """DataLossError, once per queue, when a gap is among these messages or just before them.

        If a queue has fewer messages than `most`, a gap behind its last message counts, too.
        """
        if most and topic.index(PARTITION).gaps:
            self._tell(
                topic, ((queue, _span(index, topic, queue, first, most)) for queue, first in asked)
            )

    def check_between(self, topic: Topic, queue: bytes, low: int, high: int) -> None:
        """As `check`, for a gap between two offsets."""
        if topic.index(PARTITION).gaps:
            self._tell(topic, [(queue, (low, high))])

    def _tell(self, topic: Topic, asked: Iterable[tuple[bytes, tuple[int, int]]]) -> None:
        begins = {gap.start for gap in topic.index(PARTITION).gaps}
        if not begins <= self._gaps:
            self._told.clear()
        self._gaps = begins
        met = [
            (queue, gap)
            for queue, span in asked
            if queue not in self._told
            for gap in topic.index(PARTITION).gaps_between(*span)
        ]
        self._told.update(queue for queue, _ in met)
        if met:
            raise _loss(topic, *met[0])


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
