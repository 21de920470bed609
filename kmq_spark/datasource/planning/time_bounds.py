"""Bounds by time become bounds by offset: once, when a read is planned.

All further planning knows offsets only, so it is a pure function of the store's state. Segments and
record batches that can't hold the instant are not read: the manifest knows their times.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from kmq_spark.datasource.options.bounds import OFFSET_EARLIEST, OFFSET_LATEST, Bound, Point
from kmq_spark.datasource.options.instants import as_text
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.planning.coverage import Coverage, cover
from kmq_spark.datasource.planning.history import History
from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.topics import first_offset_since


@dataclass(frozen=True)
class Times:
    """Finds the offsets of instants in the records of a store."""

    reader: ChunkReader
    #: The instant that relative ones count from, in UTC microseconds.
    now: int
    #: The archive, for instants before the log's start.
    history: History | None = None
    #: Ids of topics whose records need no search: the group's offsets decide where a stream begins.
    begun: Container[bytes] = ()

    def bound(self, bound: Bound | None, coverage: Coverage, *, late: bool) -> Bound | None:
        """Return the bound by offset; `late`: its instant may be after the last record."""
        if bound is None or not bound.by_time:
            return bound
        named = {
            name: {
                number: self._offset(bound.option, coverage.topics[name], number, point, late=late)
                for number, point in points.items()
            }
            for name, points in coverage.points(bound).items()
        }
        return Bound(option=bound.option, named=named, ids=bound.ids)

    def _offset(self, option: str, topic: Topic, number: int, point: Point, *, late: bool) -> int:
        if isinstance(point, int):
            return point
        if topic.id in self.begun:
            return OFFSET_EARLIEST
        microseconds = point.at(self.now)
        found = self._found(topic, number, microseconds)
        if found is None and not late:
            raise InvalidRequestError(
                f"option {option!r}: no offset matched, {topic.name}-{number} has no record at or "
                f"after {as_text(microseconds)}; set startingOffsetsByTimestampStrategy=latest to "
                "begin at its end",
                option=option,
            )
        return OFFSET_LATEST if found is None else found

    def _found(self, topic: Topic, number: int, microseconds: int) -> int | None:
        if self.history is not None:
            archived = self.history.first_since(topic, number, microseconds)
            if archived is not None:
                return archived
        return first_offset_since(topic, number, microseconds, self.reader)


def bounds_by_offset(options: SourceOptions, state: StoreState, times: Times) -> SourceOptions:
    """The options of a read with both bounds by offset.

    InvalidRequestError for a start after the last record of a partition, unless the options
    allow it; an end after it is the end of the log.
    """
    _check_order(options.starting, options.ending, times.now)
    coverage = cover(state, options, times.history)
    starting = times.bound(options.starting, coverage, late=options.latest_when_untimed)
    ending = times.bound(options.ending, coverage, late=True)
    return replace(options, starting=starting, ending=ending)


def _check_order(starting: Bound | None, ending: Bound | None, now: int) -> None:
    """InvalidRequestError for a start after the end, which some partitions would read as empty."""
    if not (starting and starting.instant and ending and ending.instant):
        return
    first, last = starting.instant.at(now), ending.instant.at(now)
    if first > last:
        raise InvalidRequestError(
            f"{starting.option} {as_text(first)} is after {ending.option} {as_text(last)}: no "
            "record is between them",
            option=starting.option,
        )
