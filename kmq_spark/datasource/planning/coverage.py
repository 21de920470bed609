"""The topics and partitions that a read covers in one state of the store, and their bounds."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kmq_spark.datasource.offsets import Positions
from kmq_spark.datasource.options.bounds import (
    EARLIEST,
    GROUP,
    LATEST,
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    Bound,
    Point,
)
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.options.subscription import Subscription
from kmq_spark.datasource.planning.history import History
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_storage.errors import InvalidRequestError, NotFoundError
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Partition, Topic
from kmq_storage.names import nearest

#: The offset that stands for each word; a group without a commit begins at the start.
_OF_WORD = {EARLIEST: OFFSET_EARLIEST, GROUP: OFFSET_EARLIEST, LATEST: OFFSET_LATEST}


@dataclass(frozen=True)
class Coverage:
    """The covered topics by name, and of each the covered partitions."""

    topics: Mapping[str, Topic]
    partitions: Mapping[str, Sequence[int]]
    #: The archive, which holds what is older than the log.
    history: History | None = None
    #: Topics that are named and don't exist, where the read goes on without them.
    missing: Collection[str] = ()

    @property
    def ids(self) -> dict[str, uuid.UUID]:
        """The ids of the topics: they tell a topic from a later one of the same name."""
        return {name: topic.topic_id for name, topic in self.topics.items()}

    def sorted_topics(self) -> list[Topic]:
        """The topics, by name."""
        return [topic for _, topic in sorted(self.topics.items())]

    def starts(self) -> dict[str, dict[int, int]]:
        """The first offset that each partition still has."""
        history = self.history
        if history is None:
            return {name: {p: parts[p].first for p in of} for name, parts, of in self._parts()}
        return {
            name: {p: history.low(topic, p) for p in self.partitions[name]}
            for name, topic in self.topics.items()
        }

    def ends(self) -> dict[str, dict[int, int]]:
        """The next offset that each partition will get."""
        return {name: {p: parts[p].end for p in of} for name, parts, of in self._parts()}

    def _parts(self) -> Iterator[tuple[str, list[Partition], Sequence[int]]]:
        return ((name, t.parts, self.partitions[name]) for name, t in self.topics.items())

    def ranges(self, starts: Positions, ends: Positions) -> list[TopicRanges]:
        """Return the ranges between two positions, partition by partition."""
        return [
            TopicRanges.between(topic, self.partitions[name], starts[name], ends[name])
            for name, topic in sorted(self.topics.items())
        ]

    def unread(self, starts: Positions) -> Coverage:
        """Leave out topics with nothing after a position: of thousands, few have new records."""
        ends = self.ends()
        topics = {name: topic for name, topic in self.topics.items() if starts[name] != ends[name]}
        return replace(self, topics=topics)

    def points(self, bound: Bound) -> dict[str, dict[int, Point]]:
        """Return each partition's point; InvalidRequestError unless exactly these are named.

        Offsets of a deleted topic mean the start of the topic that has its name now.
        """
        everywhere = bound.instant or _OF_WORD.get(bound.word or "")
        if everywhere is not None:
            return {name: dict.fromkeys(self.partitions[name], everywhere) for name in self.topics}
        self._check_named(bound)
        foreign = self.foreign(bound)
        return {
            name: {
                p: OFFSET_EARLIEST if name in foreign else _named(bound, name, p)
                for p in self.partitions[name]
            }
            for name in self.topics
        }

    def resolve(self, bound: Bound) -> dict[str, dict[int, int]]:
        """Return the offsets a bound means now; bounds by time were resolved by `time_bounds`."""
        if bound.word is not None:
            return self.ends() if bound.word == LATEST else self.starts()
        edges = {OFFSET_EARLIEST: self.starts(), OFFSET_LATEST: self.ends()}
        offsets: dict[str, dict[int, int]] = {}
        for name, points in self.points(bound).items():
            offsets[name] = {}
            for p, point in points.items():
                assert isinstance(point, int), "instants are resolved before a read is planned"
                offsets[name][p] = edges[point][name][p] if point in edges else point
        return offsets

    def foreign(self, bound: Bound) -> dict[str, uuid.UUID]:
        """Return topics for which a bound has offsets of another topic of the name, and its id."""
        return {
            name: topic_id
            for name, topic_id in bound.ids.items()
            if name in self.topics and self.topics[name].topic_id != topic_id
        }

    def up_to_latest(self, bound: Bound | None) -> Coverage:
        """Keep only the partitions that are read to the end of the log."""
        if bound is None or bound.word == LATEST:
            return self
        points = self.points(bound)
        return Coverage(
            self.topics,
            {
                name: [p for p in points[name] if points[name][p] == OFFSET_LATEST]
                for name in points
            },
        )

    def check_bounds(self, starting: Bound | None, ending: Bound | None, *, whole: bool) -> None:
        """InvalidRequestError at `load()` for bounds that can't fit, whatever is read with them.

        A read with an end is a batch, and its bounds must fit. A start alone may be that of a
        stream, whose checkpoint wins: its topics may have more partitions since it was written,
        but not fewer as long as the read has to be `whole`.
        """
        if ending is not None:
            self.points(ending)
            if starting is not None:
                self.points(starting)
                self.refuse_latest(starting)
        elif starting is not None and whole:
            self._check_named(starting, others_only=True)

    def refuse_latest(self, starting: Bound) -> None:
        """InvalidRequestError for a batch that begins at the end of a partition."""
        if starting.option != "startingOffsets" or starting.word in (EARLIEST, GROUP):
            return  # a start by time may be the end, with startingOffsetsByTimestampStrategy=latest
        at_latest = [
            f"{topic}-{partition}"
            for topic, points in self.points(starting).items()
            for partition, point in points.items()
            if point == OFFSET_LATEST
        ]
        if at_latest:
            where = "" if starting.word else f" for {', '.join(at_latest)}"
            raise InvalidRequestError(
                f"option 'startingOffsets' is latest{where}: a batch read would be empty, begin at "
                "'earliest' or at an offset",
                option="startingOffsets",
            )

    def _check_named(self, bound: Bound, *, others_only: bool = False) -> None:
        """Check what a bound names; `others_only`: it may leave out what is read."""
        if bound.word is not None or bound.instant is not None:
            return
        foreign = self.foreign(bound)
        assigned = {n: sorted(self.partitions[n]) for n in sorted(self.topics.keys() - foreign)}
        specified = {
            name: sorted({*named, *(assigned.get(name, ()) if name in bound.rest else ())})
            for name, named in sorted(bound.named.items())
            if name not in foreign and name not in self.missing
        }
        others = any(n not in assigned or {*of} - {*assigned[n]} for n, of in specified.items())
        if others or (specified != assigned and not others_only):
            raise InvalidRequestError(
                f"option {bound.option!r} must name every partition that is read and no other "
                f'("*" stands for the rest; {bound.forms}): '
                f"specified {specified}, assigned {assigned}",
                option=bound.option,
            )


def cover(state: StoreState, options: SourceOptions, history: History | None = None) -> Coverage:
    """Return what the options cover now; NotFoundError for a named topic that doesn't exist."""
    subscription = options.subscription
    missing = [name for name in subscription.topics if state.find_topic(name) is None]
    for name in missing:
        if options.fail_on_data_loss:  # else `missing` is for the read's losses
            _check_there(state, subscription, name)
    topics = {
        name: state.topic(name)
        for name in subscription.matches(t.name for t in state.user_topics())
    }
    partitions = {
        name: subscription.partitions_of(name, topic.partitions) for name, topic in topics.items()
    }
    return Coverage(topics, partitions, history, missing)


def _check_there(state: StoreState, subscription: Subscription, name: str) -> None:
    try:
        state.topic(name)
    except NotFoundError as missing:
        near = nearest(name, [topic.name for topic in state.user_topics()])
        raise NotFoundError(
            f"{missing.message} Option {subscription.option!r} names it{near}; with "
            "failOnDataLoss=false a query goes on without a topic that was deleted while it was "
            "stopped, and tells what was lost",
            **missing.context,
            option=subscription.option,
        ) from None


def ends_of_deleted(
    state: StoreState, options: SourceOptions, name: str, topic_id: uuid.UUID
) -> dict[int, int] | None:
    """Return where the partitions of a deleted topic ended; None if the store has forgotten it."""
    gone = state.gone.find(topic_id.bytes)
    if gone is None:
        return None
    covered = options.subscription.partitions_of(name, len(gone.ends))
    return {p: gone.ends[p] for p in covered}


def _named(bound: Bound, topic: str, partition: int) -> Point:
    named = bound.named[topic]
    return named[partition] if partition in named else bound.rest[topic]


def check_whole(state: StoreState, coverage: Coverage) -> None:
    """Raise the error of a log whose end is damaged: it must not pass for a shorter one."""
    for topic, partitions in coverage.partitions.items():
        parts = coverage.topics[topic].parts
        for partition in partitions:
            if state.broken or parts[partition].doubt:
                state.check_end(topic, partition)
