"""On the executor: from Spark's record batches to staged files, or to a message if they are small.

Rows are checked, partitioned and laid out by the functions of the Python producer, so a record
written by Spark is the record that `send_arrow` would have written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa

from kmq_spark.client.encoding.routing import Router, Rows, split
from kmq_spark.client.encoding.storable import check_storable
from kmq_spark.client.sending.topic_arrow import CheckedBatch, rows_of_topic_arrow
from kmq_spark.client.typed.topics import typed_columns
from kmq_spark.datasource.executor.staged_output import StagedOutput
from kmq_spark.datasource.sink.columns import TYPED_TOPIC, unused_columns
from kmq_spark.datasource.sink.sink import Sink, Written
from kmq_spark.datasource.sink.typed import check_spelling, narrowed, taken_columns
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import InvalidRequestError, NotFoundError
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import nearest

_RECORD_COLUMNS = ("value", "key", "partition", "timestamp", "headers", "properties")


def write_task(
    sink: Sink,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int,
    number: int = 0,
    query: str | None = None,
) -> Written:
    """Store the rows of one task where no reader sees them before the driver's commit.

    `number` differs from write to write, and moves the first partition for rows without a key:
    otherwise, writes of a single task each would put all of these rows into the same partition.
    """
    if sink.stored:
        return Written((), ())
    output = StagedOutput(sink.url, sink.lsn)
    router = Router("murmur2", first_turn=task + number)
    find = cache(sink.find)
    for batch in batches:
        for topic, records in _by_topic(batch, sink, find):
            rows = _rows(topic, records)
            routes = router.routes(topic, rows)
            check_storable(topic, rows, routes)
            output.add(split(topic, rows, routes))
    staged, small = output.finish()
    return Written(staged, small, query)


def _rows(topic: Topic, batch: pa.RecordBatch) -> Rows:
    columns = typed_columns(topic)
    if columns is None:
        known = set(_RECORD_COLUMNS).difference(unused_columns(topic.name))
    else:
        check_spelling(batch.schema.names, topic.name, columns)
        known = set(taken_columns(columns))
        batch = narrowed(batch, topic.name, columns)
    taken = batch.select([name for name in batch.schema.names if name in known])
    unchecked = CheckedBatch(taken, None, taken)
    return rows_of_topic_arrow(unchecked, topic, SYSTEM.now_us(), None)


def _by_topic(
    batch: pa.RecordBatch, sink: Sink, find: Callable[[str], Topic]
) -> Iterator[tuple[Topic, pa.RecordBatch]]:
    """Yield the rows of each topic, in their order."""
    if not batch.num_rows:
        return
    if sink.topic is not None:
        yield find(sink.topic), batch
        return
    column = TYPED_TOPIC if TYPED_TOPIC in batch.schema.names else "topic"
    encoded = batch.column(column).dictionary_encode()
    if encoded.null_count:
        raise InvalidRequestError(
            f"null topic present in the data: column {column!r} is null in a row; give every row a "
            "topic, or all of them one by option 'topic'",
            column=column,
        )
    codes = encoded.indices.to_numpy()
    named = _named(encoded.dictionary, column, sink.definitions, find)
    found = [_topic_of(topic, column) for topic in named]
    batch = batch.take(pa.array(np.argsort(codes, kind="stable"))) if len(found) > 1 else batch
    start = 0
    for topic, count in zip(found, np.bincount(codes).tolist(), strict=True):
        yield topic, batch.slice(start, count)
        start += count


def _named(
    names: pa.StringArray, column: str, topics: Iterable[str], find: Callable[[str], Topic]
) -> Iterator[Topic]:
    """Yield the topics that a column names."""
    try:
        known = names.to_pylist()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"column {column!r} holds a topic's name that isn't UTF-8: {error}", column=column
        ) from None
    for name in known:
        try:
            yield find(name)
        except NotFoundError as missing:
            near = nearest(name, [*topics])
            raise NotFoundError(
                f"{missing.message} Column {column!r} names it in a row{near}; a write makes no "
                "topics",
                **missing.context,
                column=column,
            ) from None


def _topic_of(topic: Topic, column: str) -> Topic:
    """Return the topic; InvalidRequestError if this column doesn't name topics of its kind."""
    if bool(topic.settings.schemas) != (column == TYPED_TOPIC):
        kind, other = ("untyped", "topic") if column == TYPED_TOPIC else ("typed", TYPED_TOPIC)
        raise InvalidRequestError(
            f"topic {topic.name} is {kind}: write to it with option 'topic', or name it in a "
            f"column {other!r}, not {column!r}",
            topic=topic.name,
        )
    return topic
