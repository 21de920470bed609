"""What waits to be read in each partition of a topic, and whether a micro-batch may have it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kmq_spark.datasource.admission import Limits, Waiting
from kmq_spark.datasource.data_loss import Losses, readable
from kmq_spark.datasource.history import History
from kmq_spark.datasource.topic_ranges import TopicRanges
from kmq_storage.format.manifest import weight_in_memory
from kmq_storage.log.offset_index import OffsetIndex
from kmq_storage.log.topic_state import Partition

#: What an archived record is taken to weigh where the log has none to compare with.
_ARCHIVED_WEIGHT = 1024

#: Estimates are seldom off by this much.
_SURELY_MORE = 2


@dataclass(frozen=True, slots=True)
class _InLog:
    """The records of a partition that wait in the log, as `admission` sees them."""

    index: OffsetIndex
    start: int
    end: int
    #: What the partition holds: records weigh about the same all over it.
    held: Partition

    @property
    def records(self) -> int:
        return self.end - self.start

    @property
    def about(self) -> int:
        weight = weight_in_memory(self.held.size, self.held.rows)
        return weight * self.records // max(self.held.end - self.held.start, 1)

    def first(self) -> int:
        return self.index.weight_at(self.start)

    def within(self, budget: int) -> tuple[int, int]:
        reached, weight = self.index.within(self.start, self.end, budget)
        return reached - self.start, weight


@dataclass(frozen=True, slots=True)
class _Archived:
    """The records of a partition that wait in the archive: about as heavy as those in the log."""

    records: int
    weight: int

    @property
    def about(self) -> int:
        return self.weight * self.records

    def first(self) -> int:
        return self.weight

    def within(self, budget: int) -> tuple[int, int]:
        records = min(budget // self.weight, self.records)
        return records, records * self.weight


@dataclass(frozen=True)
class Backlog:
    """The records of a topic that wait: from where each partition goes on."""

    ranges: TopicRanges
    #: By partition, what waits in the archive: a batch doesn't go on in the log behind it.
    archived: Mapping[int, _Archived]

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.ranges.topic.name

    @property
    def records(self) -> int:
        """How many wait in the log."""
        return int((self.ranges.ends - self.ranges.starts).sum())

    def starts(self) -> dict[int, int]:
        """By partition, where it goes on."""
        return dict(zip(self.ranges.partitions.tolist(), self.ranges.starts.tolist(), strict=True))

    def ends(self) -> dict[int, int]:
        """By partition, the end of what waits in the log."""
        return dict(zip(self.ranges.partitions.tolist(), self.ranges.ends.tolist(), strict=True))

    def waiting(self) -> dict[tuple[str, int], Waiting]:
        """What waits in each partition that has any, for `admission` to look into."""
        topic = self.ranges.topic
        found: dict[tuple[str, int], Waiting] = {}
        for each in self.ranges:
            at = each.offsets
            if at.partition in self.archived:
                found[topic.name, at.partition] = self.archived[at.partition]
            elif at.size:
                part = topic.parts[at.partition]
                index = topic.index(at.partition)
                found[topic.name, at.partition] = _InLog(index, at.start, at.end, part)
        return found

    def about(self) -> float:
        """About what the log's part of it weighs in bytes, at no cost."""
        low, high = self.ranges.bounds
        parts = [self.ranges.topic.parts[number] for number in self.ranges.partitions.tolist()]
        sizes, rows = (
            np.array([part.size for part in parts]),
            np.array([part.rows for part in parts]),
        )
        shares = (self.ranges.ends - self.ranges.starts) / np.maximum(high - low, 1)
        return float((weight_in_memory(sizes, rows) * shares).sum())

    def weight(self) -> int:
        """What the log's part of it weighs in bytes; a row that is cut counts in proportion."""
        ranges = self.ranges
        spread = ranges.spread()
        low = np.maximum(spread.bases, ranges.starts[spread.owners])
        high = np.minimum(spread.ends, ranges.ends[spread.owners])
        shares = (high - low) / (spread.ends - spread.bases)
        return int((spread.weights * shares).astype(np.int64).sum())


def backlog_of(wanted: TopicRanges, history: History | None, losses: Losses) -> Backlog:
    """What waits in these ranges; what is neither in the archive nor in the log is reported."""
    archived = {} if history is None else dict(_archived(wanted, history))
    doubtful = wanted.outside()
    if archived:
        doubtful &= ~np.isin(wanted.partitions, list(archived))
    starts, ends = wanted.starts.copy(), wanted.ends.copy()
    for place in np.flatnonzero(doubtful).tolist():
        inside = readable(wanted.at(place), losses).offsets
        starts[place], ends[place] = inside.start, inside.end
    ranges = TopicRanges(wanted.topic, wanted.partitions, starts, ends)
    return Backlog(ranges, archived)


def _archived(wanted: TopicRanges, history: History) -> Iterator[tuple[int, _Archived]]:
    """The partitions that go on in the archive, and what waits for them there."""
    for each in wanted:
        number, topic = each.offsets.partition, each.topic
        part, begin = topic.parts[number], each.offsets.start
        end = min(each.offsets.end, history.border(topic, number))
        if history.low(topic, number) <= begin < min(part.start, end):
            weight = weight_in_memory(part.size, part.rows) // part.rows if part.rows else 0
            yield number, _Archived(end - begin, weight or _ARCHIVED_WEIGHT)


def fits(backlogs: Sequence[Backlog], limits: Limits) -> bool:
    """Whether one micro-batch takes all of it: of what is surely too much, little is looked at."""
    if limits == Limits():
        return True
    if any(each.archived for each in backlogs):
        return False
    records = sum(each.records for each in backlogs)
    if records < limits.least or (limits.records is not None and records > limits.records):
        return False
    if limits.bytes is None:
        return True
    if sum(each.about() for each in backlogs) > _SURELY_MORE * limits.bytes:
        return False
    return sum(each.weight() for each in backlogs) <= limits.bytes
