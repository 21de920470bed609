"""From offset ranges to Spark's tasks: which stored records each of them reads.

A task contains all that is needed to find and verify its record batches. So an executor opens the
files by itself and replays no log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.options.task_limits import TaskLimits
from kmq_spark.datasource.planning.pieces import Pieces, divided, finest, share_of
from kmq_spark.datasource.planning.ranges import TASK_BYTES_MIN, OffsetRange, task_count
from kmq_spark.datasource.planning.stored_batches import StoredBatches
from kmq_spark.datasource.planning.topic_ranges import TopicRanges
from kmq_storage.log.index.excerpt import Excerpt
from kmq_storage.log.state.topic_state import check_inside
from kmq_storage.objects.files import Files

if TYPE_CHECKING:
    from kmq_spark.datasource.planning.pieces import Parts
    from kmq_storage.arrays import Numbers

#: Where there are very many batches, those below this size are planned in groups. Groups are small
#: enough that no task is off by more than an eighth.
_GRAIN = TASK_BYTES_MIN // 8


@dataclass(frozen=True, eq=False)
class PlacedRanges:
    """Offset ranges of one topic, and where their records are stored."""

    topic: str
    #: The versions of the schema of a typed topic.
    schemas: tuple[str, ...]
    index: Excerpt
    #: A row for each range: partition, start, end.
    offsets: Numbers

    def __iter__(self) -> Iterator[OffsetRange]:
        return (OffsetRange(self.topic, *each) for each in self.offsets.tolist())


@dataclass(frozen=True)
class Task(InputPartition):
    """What one Spark task reads, in this order."""

    runs: tuple[PlacedRanges, ...]


def plan_tasks(ranges: Sequence[TopicRanges], limits: TaskLimits, files: Files) -> list[Task]:
    """Return the tasks for these ranges: balanced by bytes, or as Kafka's source divides them.

    With `minPartitions` or `maxRecordsPerPartition` it is Kafka's way: each task reads of one
    partition only.
    """
    for several in ranges:
        for each in several.only(several.doubtful):
            at = each.offsets
            check_inside(each.topic, at.partition, at.start, at.end)
    # Of thousands of topics, few have something to read: the others are left out first.
    filled = [some for several in ranges if len(some := several.filled())]
    if limits.min_partitions is None and limits.max_records is None:
        return _balanced(filled, limits.max_bytes, files)
    return _divided(filled, limits, files)


def _balanced(ranges: Sequence[TopicRanges], max_bytes: int | None, files: Files) -> list[Task]:
    pieces = _pieces(ranges, grain=_GRAIN if max_bytes is None else None)
    tasks = _count(pieces, max_bytes)
    if tasks > 1 or max_bytes is not None:
        batches = StoredBatches(ranges, files)
        larger = pieces.share(tasks) if max_bytes is None else finest(max_bytes)
        pieces = batches.instead_of(pieces.cut_off(larger), pieces, larger)
        tasks = _count(pieces, max_bytes)
        larger = pieces.share(tasks)
        pieces = batches.instead_of(pieces.crossed(tasks, larger), pieces, larger)
    borders = np.cumsum([0, *map(len, ranges)])
    runs = pieces.balanced(tasks, whole=max_bytes is None)
    return [_task(ranges, borders, run) for run in runs]


def _count(pieces: Pieces, max_bytes: int | None) -> int:
    largest = None if max_bytes is None else share_of(max_bytes)
    return task_count(pieces.total, os.cpu_count() or 1, largest)


def _divided(ranges: Sequence[TopicRanges], limits: TaskLimits, files: Files) -> list[Task]:
    places = [each.offsets for several in ranges for each in several]
    topics = {several.topic.name: several.topic for several in ranges}

    def ranges_of(parts: Sequence[OffsetRange]) -> list[TopicRanges]:
        return [TopicRanges.of(topics[part.topic], [part]) for part in parts]

    def pieces_of(parts: Sequence[OffsetRange], most: int) -> Pieces:
        of_parts, larger = ranges_of(parts), finest(most)
        pieces, batches = _pieces(of_parts), StoredBatches(of_parts, files)
        pieces = batches.instead_of(pieces.cut_off(larger), pieces, larger)
        return batches.instead_of(pieces.crossed_by_parts(most), pieces, larger)

    parts = divided(places, limits, pieces_of)
    return [Task((_placed(each),)) for each in ranges_of(parts)]


def _pieces(ranges: Sequence[TopicRanges], *, grain: int | None = None) -> Pieces:
    """Return the pieces of all ranges, which are numbered consecutively."""
    parts = [Pieces.of(each.spread(grain=grain), each.starts, each.ends) for each in ranges]
    return Pieces.joined(parts, [len(each) for each in ranges])


def _task(ranges: Sequence[TopicRanges], borders: Numbers, run: Parts) -> Task:
    """Make the task of a run; its parts have the ranges' numbers, consecutive over all topics."""
    cuts = run[:, 0].searchsorted(borders).tolist()
    found = []
    for several, first, (low, high) in zip(ranges, borders, pairwise(cuts), strict=False):
        if low < high:
            owners, starts, ends = run[low:high].T
            found.append(_placed(several.parts(owners - first, starts, ends)))
    return Task(tuple(found))


def _placed(ranges: TopicRanges) -> PlacedRanges:
    topic = ranges.topic
    offsets = np.array((ranges.partitions, ranges.starts, ranges.ends)).T
    return PlacedRanges(topic.name, topic.settings.schemas, ranges.excerpt(), offsets)
