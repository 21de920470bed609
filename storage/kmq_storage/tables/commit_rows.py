"""The table `commits`: the entries of each commit, in order."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

import pyarrow as pa

from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.entries import (
    BatchIdEntry,
    Entry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    RecordsEntry,
    TopicEntry,
)
from kmq_storage.format.group_entries import GroupPlanEntry, GroupReleaseEntry
from kmq_storage.format.layout_entries import CondemnEntry, GapEntry, SegmentEntry, TrimEntry
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXHAUSTED,
    EXTEND,
    RECALL,
    RELEASE,
    RETRY,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    QueueChange,
    QueueEntry,
    QueueStateEntry,
    Run,
)
from kmq_storage.format.schedule_entry import ScheduleEntry
from kmq_storage.format.turn_entry import TurnEntry
from kmq_storage.format.uniq_entry import UniqEntry
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import Commit, to_microseconds
from kmq_storage.tables.columns import table_batch

_BATCH_COMMITS = 1_000

_ANSWERS = {
    ACK: "ack",
    RETRY: "retry",
    EXTEND: "extend",
    DEAD: "dead",
    EXHAUSTED: "dead",
    RELEASE: "release",
    RECALL: "recall",
}

Names = Mapping[bytes, str]


def commit_batches(
    log: CommitLog, first: int, last: int, topics: Names
) -> Iterator[pa.RecordBatch]:
    """The rows of the commits from the first to the last LSN (inclusive).

    `topics` has the names of the existing topics.
    """
    wanted = takewhile(lambda commit: commit.lsn <= last, log.commits(first))
    while run := list(islice(wanted, _BATCH_COMMITS)):
        yield table_batch("commits", [_row(commit, topics) for commit in run])


def names_of(state: StoreState) -> Names:
    """The names of the existing topics, by their ids."""
    return {topic.id: topic.name for topic in list(state.topics.values())}


def _row(commit: Commit, topics: Names) -> Sequence[Any]:
    entries = [row for entry in commit.entries for row in _entry_rows(entry, topics)]
    return (commit.lsn, to_microseconds(commit.time), entries)


def _entry_rows(entry: Entry, topics: Names) -> list[dict[str, Any]]:
    """The rows of an entry; offsets of a group give one row per partition."""
    match entry:
        case RecordsEntry():
            return [_placed("records", entry, topics, entry.base_offset)]
        case SegmentEntry():
            return [_placed("segment", entry, topics, entry.base_offset)]
        case TrimEntry():
            return [_placed("trim", entry, topics, entry.start)]
        case GapEntry():
            return [_placed("gap", entry, topics, entry.start)]
        case GroupOffsetsEntry():
            where = {"kind": "group_offsets", **_topic(entry.topic_id, topics)}
            return [
                {**where, "partition": number, "base_offset": offset, "name": entry.group}
                for number, offset in entry.offsets
            ]
        case TopicEntry():
            where = _topic(entry.topic_id, {entry.topic_id: entry.name})
            return [{"kind": "topic", **where, "number": entry.partitions}]
        case ProducerEntry():
            return [{"kind": "producer", "name": entry.producer, "number": entry.sequence}]
        case BatchIdEntry():
            return [{"kind": "batch", "name": entry.application, "number": entry.version}]
        case GroupEntry():
            return [{"kind": "group", "name": entry.group, "number": entry.generation}]
        case GroupPlanEntry():
            return [{"kind": "group_plan", "name": entry.group, "number": entry.generation}]
        case GroupReleaseEntry():
            where = {"kind": "group_release", "name": entry.group, "number": entry.epoch}
            return [
                {**where, **_topic(topic_id, topics), "partition": number}
                for topic_id, number in entry.partitions
            ]
        case TurnEntry():
            where = {"kind": "turn", **_topic(entry.topic_id, topics)}
            return [{**where, "number": entry.lane}]
        case CondemnEntry():
            return [{"kind": "condemn", "number": entry.before}]
        case UniqEntry():
            where = {"kind": "uniq", **_topic(entry.topic_id, topics)}
            return [
                {**where, "partition": each.partition, "base_offset": each.offset}
                for each in entry.uniqs
            ]
        case _:
            return _queue_rows(entry, topics)


def _queue_rows(entry: QueueChange, topics: Names) -> list[dict[str, Any]]:
    """The rows of an entry about a queue, one per run; `name` is that of the queue's own log."""
    where = {"name": topics.get(entry.queue_id)}
    match entry:
        case QueueEntry():
            return [{"kind": "queue", "name": entry.name}]
        case QueueStateEntry():
            return [{"kind": "queue_copy", "name": entry.name}]
        case BindEntry():
            return [{"kind": "queue_bind", **where, **_topic(entry.topic_id, topics)}]
        case ScheduleEntry():
            base, rows = entry.base_offset, len(entry.schedules)
            return [{"kind": "queue_schedule", **where, "base_offset": base, "rows": rows}]
        case LookEntry():
            count = sum(rows for _, rows in entry.entered)
            place = {"partition": entry.partition, "base_offset": entry.start, "rows": count}
            return [{"kind": "queue_look", **where, **_topic(entry.topic_id, topics), **place}]
        case AcquireEntry():
            return [_run("queue_acquire", where, run, topics) for run in entry.runs]
        case AnswerEntry():
            return [_run(f"queue_{_ANSWERS[entry.answer]}", where, r, topics) for r in entry.runs]


def _run(kind: str, where: Mapping[str, Any], run: Run, topics: Names) -> dict[str, Any]:
    place = {"partition": run.partition, "base_offset": run.first, "rows": run.rows}
    times = times_of(run.delivery)
    return {"kind": kind, **where, **_topic(run.topic_id, topics), **place, "number": times}


def _placed(
    kind: str,
    entry: RecordsEntry | SegmentEntry | TrimEntry | GapEntry,
    topics: Names,
    base_offset: int,
) -> dict[str, Any]:
    return {
        "kind": kind,
        **_topic(entry.topic_id, topics),
        "partition": entry.partition,
        "base_offset": base_offset,
        "rows": entry.rows,
        "bytes": entry.size,
    }


def _topic(topic_id: bytes, topics: Names) -> dict[str, Any]:
    return {"topic": topics.get(topic_id), "topic_id": str(uuid.UUID(bytes=topic_id))}
