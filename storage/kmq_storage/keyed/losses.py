"""Reporting lost messages to the readers of queues, so that none is skipped silently.

Of a damaged run a repair notes which messages it gave up, by queue and index. Any other gap only
tells which offsets were lost, so any queue may have had messages there. A reader of a queue can't
seek behind a gap. So it gets an error once, and its next call goes on.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow.compute as pc

from kmq_storage.arrays import Numbers
from kmq_storage.errors import DataLossError
from kmq_storage.format.binary_columns import binary_column
from kmq_storage.format.lost_messages import LostMessages, decoded
from kmq_storage.format.plain_columns import flags_of, number_column
from kmq_storage.keyed.index import QueueIndex
from kmq_storage.keyed.many import Asked, QueueRows
from kmq_storage.keyed.topic import PARTITION
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.topic_state import Topic

_LOGGER = logging.getLogger(__name__)
#: Above all offsets.
_NEVER = np.iinfo(np.int64).max
#: So many ranges are named in an error's text; all indexes are in its context.
_NAMED = 8

#: The gaps of some queues with the messages that each lost there.
_Lost = dict[bytes, list[tuple[Gap, LostMessages]]]
#: The gaps in which some queues may have lost messages.
_Unsure = list[tuple[bytes, list[Gap]]]


class _Gaps:
    """The gaps of a topic at one layout."""

    def __init__(self, found: Iterable[Gap] = (), layout: tuple[int, int] = (-1, 0)) -> None:
        self.layout = layout
        #: Gaps of which nobody knows the queues, in order.
        self.unknown: list[Gap] = []
        #: The other gaps by queue, in order, with the lost messages.
        self.known: dict[bytes, list[tuple[Gap, LostMessages]]] = {}
        self.begins = {gap.start for gap in found}
        for gap in sorted(found, key=lambda gap: gap.start):
            if gap.lost is None:
                self.unknown.append(gap)
            for lost in decoded(gap.lost or b""):
                self.known.setdefault(lost.queue, []).append((gap, lost))

    def unknown_between(self, low: int, high: int) -> list[Gap]:
        """Those of the unknown gaps that lie between two offsets, or over one of them."""
        first = bisect_right(self.unknown, low, key=lambda gap: gap.end)
        return self.unknown[first : bisect_left(self.unknown, high, key=lambda gap: gap.start)]

    def borders(self, queues: Iterable[bytes]) -> Numbers:
        """Where the unknown gaps, and those of some queues, start and end."""
        known = (gap for queue in queues for gap, _ in self.known[queue])
        return np.array(sorted({(gap.start, gap.end) for gap in (*self.unknown, *known)}))


class Losses:
    """The queues of a topic whose readers were told of its gaps; for one thread at a time."""

    def __init__(self) -> None:
        self._gaps = _Gaps()
        #: For each queue the offset from which on it was told of gaps that may concern any queue.
        self._warned: dict[bytes, int] = {}
        #: For each queue the offset from which on it was told of its own gaps.
        self._told: dict[bytes, int] = {}

    def check(self, index: QueueIndex, topic: Topic, queue: bytes, first: int, most: int) -> None:
        """DataLossError, once per queue, when a gap is among these messages or just before them.

        If a queue has fewer messages than `most`, a gap behind its last message counts, too. Gaps
        that a repair noted to be of other queues don't count.
        """
        if most and self._concerns(topic, queue):
            self._check(topic, queue, *_span(index, topic, queue, first, most))

    def check_between(self, topic: Topic, queue: bytes, low: int, high: int) -> None:
        """As `check`, for a gap between two offsets."""
        if self._concerns(topic, queue):
            self._check(topic, queue, low, high)

    def check_many(
        self, index: QueueIndex, topic: Topic, asked: Asked, parts: Sequence[QueueRows]
    ) -> None:
        """As `check`, for many queues, without looking up each."""
        if not (asked.most and self._follow(topic)):
            return
        gaps = self._gaps
        is_known = pc.is_in(asked.names, value_set=binary_column(list(gaps.known)))
        own = np.flatnonzero(flags_of(is_known))
        queues = asked.names.take(number_column(own)).to_pylist()
        borders = gaps.borders(queues)
        if not len(borders):
            return
        lows, highs = _spans(index, topic, asked, parts, borders)
        starts, ends = np.array([(gap.start, gap.end) for gap in gaps.unknown]).reshape(-1, 2).T
        nearest = ends.searchsorted(lows, "right")  # the first gap that ends behind each
        met = np.flatnonzero(np.append(starts, _NEVER)[nearest] < highs)
        some = asked.names.take(number_column(met)).to_pylist()
        unsure = self._unsure(zip(some, lows[met].tolist(), highs[met].tolist(), strict=True))
        lost = self._lost(zip(queues, lows[own].tolist(), highs[own].tolist(), strict=True))
        _raise(topic, lost, unsure)

    def _concerns(self, topic: Topic, queue: bytes) -> bool:
        return self._follow(topic) and bool(self._gaps.unknown or queue in self._gaps.known)

    def _follow(self, topic: Topic) -> bool:
        """Note the topic's gaps; False when it has none."""
        gaps = topic.index(PARTITION).gaps
        layout = topic.partition(PARTITION).layout_lsn, len(gaps)
        if gaps and layout != self._gaps.layout:
            before, self._gaps = self._gaps.begins, _Gaps(gaps, layout)
            if not self._gaps.begins <= before:
                self._warned.clear()
                self._told.clear()
        return bool(gaps)

    def _check(self, topic: Topic, queue: bytes, low: int, high: int) -> None:
        unsure, lost = self._unsure([(queue, low, high)]), self._lost([(queue, low, high)])
        _raise(topic, lost, unsure)

    def _unsure(self, asked: Iterable[tuple[bytes, int, int]]) -> _Unsure:
        """Those of these queues that may have lost messages between two offsets; told by now."""
        new: _Unsure = []
        for queue, low, high in asked:
            left = self._gaps.unknown_between(low, self._warned.get(queue, _NEVER))
            if left and left[0].start < high:
                new.append((queue, left))
                self._warned[queue] = low
        return new

    def _lost(self, asked: Iterable[tuple[bytes, int, int]]) -> _Lost:
        """Those of these queues that lost messages between two offsets; told by now."""
        new: _Lost = {}
        for queue, low, high in asked:
            told = self._told.get(queue, _NEVER)
            left = [
                each
                for each in self._gaps.known.get(queue, ())
                if low < each[0].end and each[0].start < told
            ]
            if left and left[0][0].start < high:
                new[queue] = left + new.get(queue, [])  # a queue may be named twice
                self._told[queue] = low
        return new


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


def _raise(topic: Topic, lost: _Lost, unsure: _Unsure) -> None:
    """DataLossError with all losses of both kinds, if there are any."""
    found = [(queue, some[0][0]) for queue, some in lost.items()]
    found += [(queue, gaps[0]) for queue, gaps in unsure]
    if not found:
        return
    queue, gap = found[0]
    where = {"topic": topic.name, "partition": PARTITION, "start": gap.start, "end": gap.end}
    context: dict[str, object] = {"queue": queue, **where}
    texts = [_unsure_text(topic, *unsure[0])] if unsure else []
    if lost:
        spans = {name: _joined(each for _, each in some) for name, some in lost.items()}
        context["lost"] = spans
        texts.insert(0, _lost_text(topic, queue, spans, gap))
    texts.append("the queue goes on behind them, with the next call")
    error = DataLossError("; ".join(texts), **context)
    _LOGGER.warning("%s", error)
    raise error


def _unsure_text(topic: Topic, queue: bytes, gaps: Sequence[Gap]) -> str:
    spans = [f"{gap.start} to {gap.end - 1}" for gap in gaps]
    return (
        f"messages of queue {queue!r} in {topic.name} may be lost: offsets {_named(spans)} of the "
        f"topic are ({gaps[0].reason})"
    )


def _lost_text(
    topic: Topic, queue: bytes, lost: Mapping[bytes, Sequence[tuple[int, int]]], gap: Gap
) -> str:
    spans = [f"{first} to {last}" if first < last else f"{first}" for first, last in lost[queue]]
    others = f", and some of {len(lost) - 1} more of these queues" if len(lost) > 1 else ""
    return (
        f"messages {_named(spans)} of queue {queue!r} in {topic.name} were lost "
        f"({gap.reason}){others}, by the indexes that they had: later ones have moved down"
    )


def _named(spans: Sequence[str]) -> str:
    more = f" and {len(spans) - _NAMED} more ranges" if len(spans) > _NAMED else ""
    return f"{', '.join(spans[:_NAMED])}{more}"


def _joined(found: Iterable[LostMessages]) -> list[tuple[int, int]]:
    """The first and last index of each range of messages, neighbours together."""
    spans: list[tuple[int, int]] = []
    for _, first, behind in sorted(found, key=lambda each: each.first):
        follows = bool(spans) and first <= spans[-1][1] + 1
        low, last = spans.pop() if follows else (first, first)
        spans.append((low, max(last, behind - 1)))
    return spans
