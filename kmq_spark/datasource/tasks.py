"""From offset ranges to Spark's tasks: which stored records each of them reads.

A task gets everything needed to find and prove its record batches, so an executor opens the
files by itself and never replays the log.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.ranges import OffsetRange, cut, divide, task_count
from kmq_storage.log.offset_index import Excerpt, Spread
from kmq_storage.log.topic_state import Topic, check_inside

#: Segments are divided by offsets when they are larger than this share of a task.
_TASK_SHARE = 8


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


def plan_tasks(ranges: Sequence[TopicRange], min_partitions: int | None) -> list[Task]:
    """The tasks for these ranges: as Kafka's source divides them, or balanced by bytes."""
    for each in ranges:
        check_inside(each.topic, each.offsets.partition, each.offsets.start, each.offsets.end)
    if min_partitions is None:
        return _balanced([each for each in ranges if each.offsets.size])
    topics = {each.offsets.topic: each.topic for each in ranges}
    pieces = divide([each.offsets for each in ranges], min_partitions)
    return [Task((_slice(topics[piece.topic], piece),)) for piece in pieces]


def _slice(topic: Topic, offsets: OffsetRange) -> Slice:
    start, end = offsets.start, offsets.end
    excerpt = topic.index(offsets.partition).excerpt(start, end)
    place = (topic.name, offsets.partition, start, end)
    return Slice(*place, excerpt, topic.settings.schemas)


def _balanced(ranges: Sequence[TopicRange]) -> list[Task]:
    spreads = [
        each.topic.index(each.offsets.partition).spread(each.offsets.start, each.offsets.end)
        for each in ranges
    ]
    total = sum(int(spread.bytes.sum()) for spread in spreads)
    tasks = task_count(total, os.cpu_count() or 1)
    finer = [_finer(spread, total // (tasks * _TASK_SHARE)) for spread in spreads]
    borders = np.cumsum([0, *(len(spread.bytes) for spread in finer)]).tolist()
    runs = cut(np.concatenate([spread.bytes for spread in finer]) if finer else (), tasks)
    return [
        Task(
            tuple(
                _part(each, spread, max(begin - first, 0), min(end, behind) - first)
                for each, spread, first, behind in zip(
                    ranges, finer, borders, borders[1:], strict=False
                )
                if begin < behind and first < end
            )
        )
        for begin, end in runs
    ]


def _finer(spread: Spread, largest: int) -> Spread:
    """The same bytes over pieces of at most about this size: what a large file has is divided."""
    parts = np.maximum(spread.bytes // max(largest, 1), 1)
    parts = np.minimum(parts, np.maximum(spread.ends - spread.bases, 1))
    if (parts == 1).all():
        return spread
    bases, widths = np.repeat(spread.bases, parts), np.repeat(spread.ends - spread.bases, parts)
    counts = np.repeat(parts, parts)
    number = np.arange(len(counts)) - np.repeat(np.cumsum(parts) - parts, parts)
    return Spread(
        bases + widths * number // counts,
        bases + widths * (number + 1) // counts,
        np.repeat(spread.bytes, parts) // counts,
    )


def _part(whole: TopicRange, spread: Spread, begin: int, end: int) -> Slice:
    offsets = whole.offsets
    start = max(offsets.start, int(spread.bases[begin]))
    stop = min(offsets.end, int(spread.ends[end - 1]))
    return _slice(whole.topic, OffsetRange(offsets.topic, offsets.partition, start, stop))
