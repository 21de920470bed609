"""On the executor: the messages of one task over keyed topics, with their queues and indexes.

A message's index follows from all records before it. So such a task reads the store's state when
it runs, whereas tasks over other topics read what they were planned with.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
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
from kmq_storage.keyed.index import run_places
from kmq_storage.keyed.rows import KeyedReader, KeyedRows
from kmq_storage.keyed.topic import PARTITION
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
        origin = Origin(run.topic, topic_id, PARTITION)
        for rows in _rows(log, reader, origin, list(run), losses):
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
    log: CommitLog,
    reader: KeyedReader,
    origin: Origin,
    wanted: Sequence[OffsetRange],
    losses: Losses,
) -> Iterator[KeyedRows]:
    def kept(state: StoreState) -> list[TopicRange]:
        topic = state.topic_by_id(origin.topic_id.bytes)
        if topic is not None:
            ranges = (TopicRange(topic, each) for each in wanted)
            return [part for each in ranges for part in readable(each, losses)]
        begins, ends = {PARTITION: wanted[0].start}, {PARTITION: wanted[-1].end}
        losses.report_deleted(state, origin.topic, origin.topic_id, begins, ends)
        return []

    try:
        for start, end in _joined(looking_again(log, kept)):
            yield from reader.between(start, end)
    except NotFoundError:
        losses.report_deleted(log.state, origin.topic, origin.topic_id, {}, None)


def _joined(parts: Sequence[TopicRange]) -> Iterator[tuple[int, int]]:
    """The ranges of offsets to read; those in runs with only gaps between them as one.

    A run is read whole for each range, and after a repair there may be thousands between gaps.
    """
    runs = run_places(parts[0].topic) if parts else []
    behind = runs[-1].end_offset if runs else 0
    held: tuple[int, int] | None = None
    for part in parts:
        start, end = part.offsets.start, part.offsets.end
        if held is not None:
            between = part.topic.index(PARTITION).outside_gaps(held[1], start)
            if held[1] <= start < behind and not any(True for _ in between):
                start = held[0]
            else:
                yield held
        held = start, end
    if held is not None:
        yield held
