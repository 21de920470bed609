"""From offset ranges to Spark's tasks: which stored records each of them reads.

A task gets everything needed to find and prove its record batches, so an executor opens the
files by itself and never replays the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.pieces import Pieces, share_of
from kmq_spark.datasource.ranges import (
    OffsetRange,
    TaskLimits,
    at_most,
    divide,
    task_count,
)
from kmq_storage.log.offset_index import Excerpt, excerpt_of
from kmq_storage.log.topic_state import Topic, check_inside


@dataclass(frozen=True)
class Slice:
    """Records of one partition from start up to, not including, end, and where they stand."""

    topic: str
    partition: int
    start: int
    end: int
    index: Excerpt
    #: The versions of the schema of a typed topic.
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task(InputPartition):
    """What one Spark task reads, in this order."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class TopicRange:
    """An offset range together with the topic that knows its record batches."""

    topic: Topic
    offsets: OffsetRange


def plan_tasks(ranges: Sequence[TopicRange], limits: TaskLimits) -> list[Task]:
    """The tasks for these ranges: balanced by bytes, or as Kafka's source divides them.

    Kafka's way is that of `minPartitions` and `maxRecordsPerPartition`: a task never reads of
    two partitions then.
    """
    for each in ranges:
        check_inside(each.topic, each.offsets.partition, each.offsets.start, each.offsets.end)
    filled = [each for each in ranges if each.offsets.size]
    if limits.min_partitions is None and limits.max_records is None:
        return _balanced(filled, limits.max_bytes)
    return _divided(filled, limits)


def _balanced(ranges: Sequence[TopicRange], max_bytes: int | None) -> list[Task]:
    pieces = _pieces(ranges)
    largest = None if max_bytes is None else share_of(max_bytes)
    tasks = task_count(pieces.total, os.cpu_count() or 1, largest)
    return [
        _task(TopicRange(ranges[n].topic, ranges[n].offsets.between(*at)) for n, *at in run)
        for run in pieces.balanced(tasks)
    ]


def _divided(ranges: Sequence[TopicRange], limits: TaskLimits) -> list[Task]:
    topics = {each.offsets.topic: each.topic for each in ranges}
    parts = at_most([each.offsets for each in ranges], limits.max_records)
    if limits.max_bytes is not None:
        pieces = _pieces([TopicRange(topics[part.topic], part) for part in parts])
        parts = [parts[n].between(*at) for n, *at in pieces.of_bytes(limits.max_bytes)]
    return [
        _task([TopicRange(topics[part.topic], part)])
        for part in divide(parts, limits.min_partitions or 1)
    ]


def _pieces(ranges: Sequence[TopicRange]) -> Pieces:
    return Pieces.of(
        [
            each.topic.index(each.offsets.partition).spread(each.offsets.start, each.offsets.end)
            for each in ranges
        ],
        [(each.offsets.start, each.offsets.end) for each in ranges],
    )


def _task(parts: Iterable[TopicRange]) -> Task:
    """A task that reads these ranges; those of one topic are found with one excerpt."""
    slices: list[Slice] = []
    for topic, run in groupby(parts, lambda part: part.topic):
        places = [part.offsets for part in run]
        excerpt = excerpt_of([(topic.index(at.partition), at.start, at.end) for at in places])
        slices += (
            Slice(topic.name, at.partition, at.start, at.end, excerpt, topic.settings.schemas)
            for at in places
        )
    return Task(tuple(slices))
