"""Reading a topic as Arrow from start to end, and naming offsets by word or time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from kmq_spark.client.consuming.subscription import checked_topics
from kmq_spark.client.handles.arguments import (
    checked_count,
    checked_numbers,
    checked_offset,
    checked_offsets,
    checked_partition,
)
from kmq_spark.client.records.record_columns import public_batches, public_schema
from kmq_spark.client.records.values import to_timestamp
from kmq_spark.errors import InvalidRequestError, NotFoundError
from kmq_storage.groups.administration import Offsets, committed_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.moving import looking_again
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic, out_of_range
from kmq_storage.names import is_word, nearest
from kmq_storage.topics import first_offset_since

Bound = Mapping[int, int] | datetime | None


def topic_reader(
    log: CommitLog,
    name: str,
    partitions: Iterable[int] | None,
    bounds: tuple[Bound, Bound],
    columns: Iterable[str] | None,
    *,
    batch_rows: int,
) -> pa.RecordBatchReader:
    """The reader behind `Store.read`: checked and planned now, read when it is iterated."""
    batch_rows = checked_count("batch_rows", batch_rows)
    chosen = None if partitions is None else checked_numbers(partitions)
    plan = plan_read(log, name, chosen, bounds)
    topic, reader = plan.topic, ChunkReader(log.files)
    schema = _projected(public_schema(topic.layout()), columns)
    layout = topic.layout(None if columns is None else frozenset(schema.names))

    def batches() -> Iterator[pa.RecordBatch]:
        for number, span in plan.spans.items():
            for part in scan(
                log, reader, topic, number, span, batch_rows=batch_rows, layout=layout
            ):
                if part.batch.num_rows:
                    yield from public_batches(part, schema)
            plan.check_end(number)

    return pa.RecordBatchReader.from_batches(schema, batches())


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What is read of a topic: start and end offset per partition."""

    state: StoreState
    topic: Topic
    spans: Mapping[int, tuple[int, int]]
    #: The end as it was asked for.
    bound: Bound

    def check_end(self, number: int) -> None:
        """CorruptionError when what was asked for may go on behind what can be read."""
        end = self.spans[number][1]
        if isinstance(self.bound, Mapping):
            asks_for_all = self.bound.get(number, end + 1) > end
        else:
            asks_for_all = end >= self.topic.partition(number).end
        if asks_for_all:
            self.state.check_end(self.topic.name, number)


def plan_read(
    log: CommitLog, name: str, chosen: Iterable[int] | None, bounds: tuple[Bound, Bound]
) -> ReadPlan:
    """What these bounds say of a topic, or of some partitions of it, as it is now."""

    def planned(state: StoreState) -> ReadPlan:
        topic = state.topic(name)
        numbers = range(topic.partitions) if chosen is None else sorted(set(chosen))
        spans = _spans(topic, numbers, bounds, ChunkReader(log.files))
        return ReadPlan(state, topic, spans, bounds[1])

    return looking_again(log, planned)


def _projected(whole: pa.Schema, columns: Iterable[str] | None) -> pa.Schema:
    if columns is None:
        return whole
    if not isinstance(columns, Iterable):
        raise InvalidRequestError(f"columns must be names, not {columns!r}", option="columns")
    wanted = [columns] if isinstance(columns, str) else list(columns)
    if not wanted:
        raise InvalidRequestError("columns is empty: name at least one column", option="columns")
    for name in wanted:
        if name not in whole.names:
            hint = nearest(str(name), whole.names)
            raise InvalidRequestError(f"column {name!r} is unknown{hint}", column=name)
    return pa.schema([whole.field(name) for name in wanted], metadata=whole.metadata)


def _spans(
    topic: Topic, numbers: Iterable[int], bounds: tuple[Bound, Bound], reader: ChunkReader
) -> dict[int, tuple[int, int]]:
    """Start and end offset per partition; OffsetOutOfRangeError for a start outside the log."""
    _check_named(topic, bounds)
    spans = {}
    for number in numbers:
        part = topic.partition(number)
        start = _offset(topic, number, bounds[0], part.first, reader)
        end = _offset(topic, number, bounds[1], part.end, reader)
        if not part.first <= start <= part.end:
            raise out_of_range(topic.name, number, start, part)
        spans[number] = (start, min(end, part.end))
    return spans


def _check_named(topic: Topic, bounds: tuple[Bound, Bound]) -> None:
    for what, bound in zip(("start", "end"), bounds, strict=True):
        if isinstance(bound, Mapping):
            for number in bound:
                topic.partition(checked_partition(number))
        elif bound is not None:
            _check_instant(what, bound)


def _check_instant(what: str, bound: object) -> None:
    """InvalidRequestError for what is neither offsets nor an instant."""
    if not isinstance(bound, datetime):
        raise InvalidRequestError(
            f"{what} must be {{partition: offset}} or a datetime with a time zone, not {bound!r}",
            field=what,
        )
    to_timestamp(bound, what)


def _offset(topic: Topic, number: int, bound: Bound, default: int, reader: ChunkReader) -> int:
    if bound is None:
        return default
    if isinstance(bound, Mapping):
        return checked_offset(bound.get(number, default))
    instant = to_timestamp(bound)
    found = first_offset_since(topic, number, instant, reader)
    return topic.partition(number).end if found is None else found


def trim_offsets(
    log: CommitLog, topic: Topic, before: Mapping[int, int] | datetime
) -> dict[int, int]:
    """The new start of each partition from what `Store.trim` takes."""
    if isinstance(before, Mapping):
        return dict(checked_offsets({topic.name: before})[topic.name])
    _check_instant("before", before)
    reader = ChunkReader(log.files)
    return {
        number: _offset(topic, number, before, topic.partition(number).end, reader)
        for number in range(topic.partitions)
    }


def resolve_group_offsets(
    log: CommitLog,
    group: str,
    offsets: Offsets | str | datetime,
    names: Iterable[str] | None,
) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition from what `Store.set_group_offsets` takes."""
    if isinstance(offsets, Mapping):
        if names is not None:
            raise InvalidRequestError(
                "topics goes with words and instants: a mapping of offsets names its own topics",
                option="topics",
            )
        return checked_offsets(offsets)
    if not (is_word(offsets, ("earliest", "latest")) or isinstance(offsets, datetime)):
        raise InvalidRequestError(
            f"offsets must be 'earliest', 'latest', an instant or a mapping, not {offsets!r}"
        )
    state = log.refresh()
    chosen = checked_topics(names) or tuple(committed_offsets(state, group))
    if not chosen:
        raise NotFoundError(f"Group[{group}] has no offsets yet; name the topics", group=group)
    reader = ChunkReader(log.files)
    return {
        name: {
            number: _named_offset(state.topic(name), number, offsets, reader)
            for number in range(state.topic(name).partitions)
        }
        for name in chosen
    }


def _named_offset(topic: Topic, number: int, word: Any, reader: ChunkReader) -> int:
    part = topic.partition(number)
    if word == "earliest":
        return part.first
    if word == "latest":
        return part.end
    to_timestamp(word, "offsets")
    return _offset(topic, number, word, part.end, reader)
