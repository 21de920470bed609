"""From offset ranges to Spark's tasks: which stored record batches each of them reads.

A task gets references to record batches with everything needed to find and prove them, so an
executor opens the files by itself and never replays the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.ranges import OffsetRange, cut, divide, task_count
from kmq_storage.log.state import Topic
from kmq_storage.model import Chunk, Location


@dataclass(frozen=True)
class Slice:
    """Records of one partition from start up to, not including, end, and where they stand."""

    topic: str
    partition: int
    start: int
    end: int
    chunks: tuple[Chunk, ...]

    def __reduce__(self) -> tuple[Callable[..., Slice], tuple[Any, ...]]:
        """Column by column: a task may have very many small chunks."""
        files: dict[str, str] = {}
        rows = [
            (
                chunk.base_offset,
                chunk.rows,
                # Equal names as one object, which is pickled once.
                files.setdefault(chunk.location.file, chunk.location.file),
                chunk.location.position,
                chunk.location.length,
                chunk.checksum,
                chunk.columns,
                chunk.min_timestamp,
                chunk.max_timestamp,
                chunk.size,
            )
            for chunk in self.chunks
        ]
        place = (self.topic, self.partition, self.start, self.end)
        return _unpacked, (place, list(zip(*rows, strict=True)))


def _unpacked(place: tuple[str, int, int, int], columns: list[tuple[Any, ...]]) -> Slice:
    chunks = tuple(
        Chunk(base, rows, Location(file, position, length), *facts)
        for base, rows, file, position, length, *facts in zip(*columns, strict=True)
    )
    return Slice(*place, chunks)


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
    if min_partitions is not None:
        topics = {each.offsets.topic: each.topic for each in ranges}
        pieces = divide([each.offsets for each in ranges], min_partitions)
        return [Task((_slice(topics[piece.topic], piece),)) for piece in pieces]
    return _balanced([_slice(each.topic, each.offsets) for each in ranges if each.offsets.size])


def _slice(topic: Topic, offsets: OffsetRange) -> Slice:
    chunks = topic.chunks(offsets.partition, offsets.start, offsets.end)
    return Slice(topic.name, offsets.partition, offsets.start, offsets.end, tuple(chunks))


def _balanced(slices: Sequence[Slice]) -> list[Task]:
    pieces = [(whole, chunk) for whole in slices for chunk in whole.chunks]
    sizes = [chunk.location.length for _, chunk in pieces]
    tasks = task_count(sum(sizes), os.cpu_count() or 1)
    return [_task(pieces[begin:end]) for begin, end in cut(sizes, tasks)]


def _task(pieces: Sequence[tuple[Slice, Chunk]]) -> Task:
    runs = [list(run) for _, run in groupby(pieces, key=lambda piece: id(piece[0]))]
    return Task(tuple(_narrowed(run[0][0], tuple(chunk for _, chunk in run)) for run in runs))


def _narrowed(whole: Slice, chunks: tuple[Chunk, ...]) -> Slice:
    start = max(whole.start, chunks[0].base_offset)
    end = min(whole.end, chunks[-1].end_offset)
    return Slice(whole.topic, whole.partition, start, end, chunks)
