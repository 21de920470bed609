"""The records of a topic that wait to be read, and whether a micro-batch may have them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kmq_spark.datasource.planning.data_loss import Losses, inside_log
from kmq_spark.datasource.planning.history import History
from kmq_spark.datasource.planning.topic_ranges import TopicRange, TopicRanges
from kmq_spark.datasource.streams.admission import Limits
from kmq_spark.datasource.streams.weighing import Weighed
from kmq_storage.cached import cached_property
from kmq_storage.format.manifest import weight_in_memory

if TYPE_CHECKING:
    from kmq_storage.arrays import Numbers

#: The least weight assumed for an archived record when the log has none to compare with: a size in
#: the archive's files is that of compressed data.
_ARCHIVED_WEIGHT = 1024

#: An estimate this many times above the limit is believed: estimates are seldom off by so much.
_SURELY_MORE = 2


@dataclass(frozen=True)
class Backlog:
    """The records of a topic that wait, from the position of each partition on."""

    ranges: TopicRanges
    #: How many records of each range, from its start on, the archive has.
    archived: Numbers
    history: History | None = None

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.ranges.topic.name

    @property
    def records(self) -> Numbers:
        """How many records of each partition the next batch could have.

        What was lost between archive and log would take their room: the batch stops before it.
        """
        low, _ = self.ranges.bounds
        torn = (self.archived > 0) & (self.ranges.starts + self.archived < low)
        return np.where(torn, self.archived, self.ranges.ends - self.ranges.starts)

    def filled(self) -> Backlog:
        """Without the partitions that have none."""
        some = self.records > 0
        return Backlog(self.ranges.only(some), self.archived[some], self.history)

    def positions(self, offsets: Numbers) -> dict[int, int]:
        """An offset of each partition."""
        return dict(zip(self.ranges.partitions.tolist(), offsets.tolist(), strict=True))

    def weight(self) -> int:
        """Return their bytes if all are in the log; an index row that is cut counts in part."""
        ranges = self.ranges
        return Weighed.of(ranges.spread(), ranges.starts, ranges.ends).total

    @cached_property
    def about(self) -> Numbers:
        """Their estimated weight in bytes; it costs nothing."""
        low, high = self.ranges.bounds
        held = weight_in_memory(*self._held)
        share = (self.records - self.archived) / np.maximum(high - low, 1)
        of_log: Numbers = (held * share).astype(np.int64)
        return of_log + self.archived * self.archived_weights

    @cached_property
    def archived_weights(self) -> Numbers:
        """The estimated weight of an archived record: the average of the log, or of the files."""
        sizes, rows = self._held
        unknown, other = rows == 0, 0
        if self.history is not None and (unknown & (self.archived > 0)).any():
            other = weight_in_memory(self.history.bytes_per_row(self.topic), 1)
        weights = weight_in_memory(sizes, rows) // np.maximum(rows, 1)
        return np.where(unknown, max(other, _ARCHIVED_WEIGHT), weights)

    @cached_property
    def _held(self) -> tuple[Numbers, Numbers]:
        """Bytes and records that each partition holds: they give a record's average weight."""
        parts = self.ranges.logs
        sizes, rows = [part.size for part in parts], [part.rows for part in parts]
        return np.array(sizes, np.int64), np.array(rows, np.int64)


def backlog_of(wanted: TopicRanges, history: History | None, losses: Losses) -> Backlog:
    """Return what waits in these ranges; report what neither archive nor log has."""
    archived, old = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    starts, ends = wanted.starts.copy(), wanted.ends.copy()
    for place, each in enumerate(wanted if history is not None else ()):
        parts = history.cut(each) if history is not None else None
        if parts is not None:
            below, held, _ = parts
            if below.size:
                inside_log(TopicRange(each.topic, below), losses, history)
            starts[place], archived[place], old[place] = below.end, held.size, True
    for place in np.flatnonzero(wanted.outside() & ~old).tolist():
        inside = inside_log(wanted.at(place), losses, history).offsets
        starts[place], ends[place] = inside.start, inside.end
    return Backlog(wanted.moved(starts, ends), archived, history)


def fits(backlogs: Sequence[Backlog], limits: Limits) -> bool:
    """Whether one micro-batch takes it all; clearly too much is found without reading the index."""
    if limits == Limits():
        return True
    if any(each.archived.any() for each in backlogs):
        return False
    records = sum(int(each.records.sum()) for each in backlogs)
    if records < limits.least or (limits.records is not None and records > limits.records):
        return False
    if limits.bytes is None:
        return True
    if sum(int(each.about.sum()) for each in backlogs) > _SURELY_MORE * limits.bytes:
        return False
    return sum(each.weight() for each in backlogs) <= limits.bytes
