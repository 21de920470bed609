"""How a group learns the name of the query that reads it.

Spark tells a source nothing of its query, but tells every task. So in a run with a group, the first
task carries the query's place in the group, and commits the name that it finds on its executor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource.groups.committed import Place, announce
from kmq_spark.datasource.offsets import Positions
from kmq_spark.datasource.opening import open_log
from kmq_storage.errors import KmqError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnnouncingTask(InputPartition):
    """A task that first announces its query to the group."""

    task: InputPartition
    place: Place
    topics: Mapping[str, tuple[int, ...]]


def announcing(task: InputPartition, place: Place, positions: Positions) -> AnnouncingTask:
    """The task, with an announcement that its query reads these partitions."""
    topics = {topic: tuple(offsets) for topic, offsets in positions.items()}
    return AnnouncingTask(task, place, topics)


def announced(partition: InputPartition, url: str) -> InputPartition:
    """Make the announcement of a task, and return the task; a failed one stops no query."""
    if not isinstance(partition, AnnouncingTask):
        return partition
    place = partition.place
    try:
        announce(open_log(url, read_only=False), place, _name(), partition.topics)
    except (KmqError, OSError) as problem:
        _log.info("group %s doesn't learn its query's name: %s", place.group, problem)
    return partition.task


def _name() -> str:
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    if context is None or query is None:
        return "a streaming query"
    # Spark describes the job as "NAME\nid = ...\nrunId = ...\nbatch = ...", or without a name.
    description = context.getLocalProperty("spark.job.description") or ""
    name, more, _ = description.partition("\nid = ")
    named = f" {name!r}" if more and name else ""
    return f"streaming query{named} (id {query})"
