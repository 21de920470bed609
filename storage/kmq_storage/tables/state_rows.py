"""The small tables: their rows are made from one state of the store, on Spark's driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from kmq_storage.format.typed import declared
from kmq_storage.groups.administration import describe_in, members_in
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import GroupInfo, TopicSettings, to_microseconds
from kmq_storage.queues.administration import info_of

Row = Sequence[Any]


def topic_rows(log: CommitLog, state: StoreState) -> Iterator[Row]:
    """A row per topic: its size and its settings."""
    for topic in state.user_topics():
        size = sum(part.size for part in topic.parts)
        counts = (topic.partitions, topic.held, size)
        yield (topic.name, str(topic.topic_id), *counts, *_settings(topic.settings))


def _settings(settings: TopicSettings) -> Row:
    schema = settings.schema
    return (
        None if schema is None else declared(schema),
        settings.cleanup,
        settings.retention,
        settings.retention_bytes,
        settings.capacity,
        settings.max_record_bytes,
        settings.uniq_window,
        settings.compression,
    )


def partition_rows(log: CommitLog, state: StoreState) -> Iterator[Row]:
    """A row per partition."""
    for topic in state.user_topics():
        for number, part in enumerate(topic.parts):
            yield (topic.name, number, part.first, part.end, part.rows, part.size)


def group_rows(log: CommitLog, state: StoreState) -> Iterator[Row]:
    """A row per group and partition, for the topics that the group committed or reads."""
    for name, group in sorted(state.groups.items()):
        yield from _lag_rows(describe_in(state, log, name, group))


def _lag_rows(group: GroupInfo) -> Iterator[Row]:
    if not group.end:
        yield (group.name, group.generation, *[None] * 7)
    for topic, ends in group.end.items():
        committed = group.committed.get(topic, {})
        for number, end in ends.items():
            lags = (group.lag, group.lag_bytes, group.lag_seconds)
            behind = [lag[topic][number] for lag in lags]
            place = (topic, number, committed.get(number), end)
            yield (group.name, group.generation, *place, *behind)


def member_rows(log: CommitLog, state: StoreState) -> Iterator[Row]:
    """A row per live member of a group."""
    for name, group in sorted(state.groups.items()):
        for member in members_in(state, log, name, group):
            assignment = sorted(member.assignment.items())
            joined = to_microseconds(member.joined)
            yield (name, member.name, member.client, joined, assignment, member.epoch)


def queue_rows(log: CommitLog, state: StoreState) -> Iterator[Row]:
    """A row per queue, in the order of the table's columns."""
    for queue in sorted(state.queues, key=lambda each: each.name):
        info = info_of(log, queue)
        yield (info.name, info.topics, *astuple(info.stats))


ROWS: Mapping[str, Callable[[CommitLog, StoreState], Iterator[Row]]] = {
    "topics": topic_rows,
    "partitions": partition_rows,
    "groups": group_rows,
    "members": member_rows,
    "queues": queue_rows,
}
