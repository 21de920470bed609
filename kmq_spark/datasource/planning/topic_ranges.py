"""Offset ranges with their topic, which knows where the records are: one range, or very many."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_storage.cached import cached_property
from kmq_storage.log.index.excerpt import Excerpt, excerpt_of
from kmq_storage.log.index.offset_index import OffsetIndex
from kmq_storage.log.index.row_table import packed_between
from kmq_storage.log.index.spread import Spread, spread_of
from kmq_storage.log.state.topic_state import Partition, Topic

if TYPE_CHECKING:
    from kmq_storage.arrays import Mask, Numbers

#: A spread of fewer rows is cached.
_FEW_ROWS = 32_768


@dataclass(frozen=True)
class TopicRange:
    """An offset range together with the topic that knows its record batches."""

    topic: Topic
    offsets: OffsetRange


@dataclass(frozen=True)
class TopicRanges:
    """Offset ranges of one topic as columns: an object for each would dominate the planning."""

    topic: Topic
    partitions: Numbers
    starts: Numbers
    ends: Numbers

    @classmethod
    def between(
        cls,
        topic: Topic,
        partitions: Collection[int],
        starts: Mapping[int, int],
        ends: Mapping[int, int],
    ) -> TopicRanges:
        """Return the ranges between two positions; a partition without a start begins at 0."""
        begins, behind = map(starts.get, partitions, repeat(0)), map(ends.__getitem__, partitions)
        return cls(topic, *(_column(values, partitions) for values in (partitions, begins, behind)))

    @classmethod
    def of(cls, topic: Topic, ranges: Iterable[OffsetRange]) -> TopicRanges:
        """These ranges, in their order."""
        rows = [(each.partition, each.start, each.end) for each in ranges]
        return cls(topic, *np.array(rows, np.int64).reshape(-1, 3).T)

    def __iter__(self) -> Iterator[TopicRange]:
        for place in zip(*(column.tolist() for column in self._columns), strict=True):
            yield TopicRange(self.topic, OffsetRange(self.topic.name, *place))

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def _columns(self) -> tuple[Numbers, Numbers, Numbers]:
        return self.partitions, self.starts, self.ends

    def only(self, wanted: Mask) -> TopicRanges:
        """Some of the ranges."""
        if wanted.all():
            return self
        return TopicRanges(self.topic, *(column[wanted] for column in self._columns))

    def known(self, other: TopicRanges | None) -> TopicRanges:
        """Return the other ranges, with what they have cached, if they are the same as these."""
        return other if other is not None and self._is(other) else self

    def _is(self, other: TopicRanges) -> bool:
        return self.topic is other.topic and all(map(np.array_equal, self._columns, other._columns))

    def parts(self, places: Numbers, starts: Numbers, ends: Numbers) -> TopicRanges:
        """Parts of the ranges at these places."""
        if len(places) == len(self) and (starts == self.starts).all() and (ends == self.ends).all():
            return self  # with all that is cached
        return TopicRanges(self.topic, self.partitions[places], starts, ends)

    def moved(self, starts: Numbers, ends: Numbers) -> TopicRanges:
        """Other offsets of the same partitions."""
        return self.parts(np.arange(len(self)), starts, ends)

    def at(self, place: int) -> TopicRange:
        """The range at this place."""
        offsets = OffsetRange(self.topic.name, *(int(column[place]) for column in self._columns))
        return TopicRange(self.topic, offsets)

    def filled(self) -> TopicRanges:
        """The ranges that are not empty."""
        return self.only(self.ends > self.starts)

    @cached_property
    def logs(self) -> list[Partition]:
        """The partition of each range."""
        return list(map(self.topic.parts.__getitem__, self.partitions.tolist()))

    @cached_property
    def indexes(self) -> list[OffsetIndex]:
        """Where the records of each range are."""
        indexes = [part.index for part in self.logs]
        assert None not in indexes, "only a reader's state knows where records are"
        return cast("list[OffsetIndex]", indexes)

    @cached_property
    def recent(self) -> list[bytes]:
        """The rows in memory of each range, packed."""
        tables = (index.recent for index in self.indexes)
        return packed_between(tables, self.starts, self.ends)

    def spread(self, *, grain: int | None = None) -> Spread:
        """Return how bytes are spread over the offsets (`spread_of`); the caller may change it."""
        if self._few:
            return self._few[0].copied()
        found = spread_of(self.indexes, self.recent, self.starts, self.ends, grain=grain)
        if grain is None and len(found.owners) < _FEW_ROWS:
            self._few.append(found.copied())
        return found

    @cached_property
    def _few(self) -> list[Spread]:
        """Holds the exact spread, once it was asked for, if it has few rows."""
        return []

    def excerpt(self) -> Excerpt:
        """Return what another process needs to find the records."""
        return excerpt_of(self.indexes, self.recent, int(self.starts[0]), int(self.ends[-1]))

    @cached_property
    def bounds(self) -> tuple[Numbers, Numbers]:
        """Where the log of each range's partition begins and ends."""
        parts = self.logs
        starts = _column([part.start for part in parts], parts)
        begun = _column([part.is_begun for part in parts], parts)
        ends = _column([part.end for part in parts], parts)
        return np.minimum(starts + begun, ends), ends  # as `Partition.first`

    def outside(self) -> Mask:
        """Which ranges reach beyond what the log holds."""
        low, high = self.bounds
        return (self.starts < low) | (self.starts > self.ends) | (self.ends > high)

    @cached_property
    def doubtful(self) -> Mask:
        """Which ranges may lack records: they reach beyond the log, or it has gaps or holes."""
        outside = self.outside()
        harmed = [at for at, index in enumerate(self.indexes) if index.gaps or index.holes]
        outside[harmed] = True
        return outside


def _column(values: Iterable[int], of: Collection[Any]) -> Numbers:
    """Make a column of numbers, quicker than `np.array` does from a list."""
    return np.fromiter(values, np.int64, len(of))
