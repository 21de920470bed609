"""On the executor: the messages of one task over keyed topics, with their queues and indexes.

A message's index follows from all records before it. So such a task reads the store's state when
it runs, whereas tasks over other topics read what they were planned with.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from kmq_spark.datasource.executor.record_batches import Origin, of_queues
from kmq_spark.datasource.opening import open_log
from kmq_spark.datasource.options.source_options import SourceOptions
from kmq_spark.datasource.planning.data_loss import Losses, readable
from kmq_spark.datasource.planning.ranges import OffsetRange
from kmq_spark.datasource.planning.tasks import Task
from kmq_spark.datasource.planning.topic_ranges import TopicRange
from kmq_spark.datasource.planning.view import View
from kmq_storage.errors import NotFoundError
from kmq_storage.keyed.rows import KeyedReader, KeyedRows
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic


def read_queues(options: SourceOptions, task: Task, view: View) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task in Spark's columns; report those that are gone by now."""
    log = open_log(options.url, read_only=True)
    losses = Losses(fail=options.fail_on_data_loss)
    for run in task.runs:
        topic_id = uuid.UUID(bytes=run.index.topic_id)
        trimmed = partial(_report_trimmed, losses)
        reader = KeyedReader(log, topic_id.bytes, view.arrow.names, options.queues, trimmed)
        for wanted in run:
            origin = Origin(run.topic, topic_id, wanted.partition)
            for rows in _rows(log, reader, origin, wanted, losses):
                yield of_queues(rows, origin, view)


def _report_trimmed(losses: Losses, topic: Topic, start: int, end: int) -> None:
    """Report what was trimmed while a reader was on its way through it."""
    losses.report(
        f"{topic.name}: offsets {start} to {end - 1} were trimmed while they were read: how much "
        "of them went unread is not known",
        topic.topic_id,
        (),
        topic=topic.name,
        start=start,
        end=end,
    )


def _rows(
    log: CommitLog, reader: KeyedReader, origin: Origin, wanted: OffsetRange, losses: Losses
) -> Iterator[KeyedRows]:
    def kept(state: StoreState) -> list[TopicRange]:
        topic = state.topic_by_id(origin.topic_id.bytes)
        if topic is not None:
            return readable(TopicRange(topic, wanted), losses)
        begins, ends = {wanted.partition: wanted.start}, {wanted.partition: wanted.end}
        losses.report_deleted(state, origin.topic, origin.topic_id, begins, ends)
        return []

    try:
        for each in looking_again(log, kept):
            yield from reader.between(each.offsets.start, each.offsets.end)
    except NotFoundError:
        losses.report_deleted(log.state, origin.topic, origin.topic_id, {}, None)
