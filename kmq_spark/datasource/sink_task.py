"""On the executor: from Spark's record batches to staged files, or to a message if they are small.

Rows are checked, partitioned and laid out by the functions of the Python producer, so a record
written by Spark is the record that `send_arrow` would have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from kmq_spark.client.encoding import rows_of_arrow
from kmq_spark.client.routing import Router, Rows, split
from kmq_spark.client.work import unstorable, why_unstorable
from kmq_spark.datasource.sink import Sink, Written
from kmq_spark.datasource.staged_output import StagedOutput
from kmq_spark.datasource.typed_sink import rows_of_sink
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import InvalidRequestError
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic

_RECORD_COLUMNS = ("value", "key", "partition", "timestamp", "headers")


def write_task(
    sink: Sink, batches: Iterable[pa.RecordBatch], *, task: int, query: str | None = None
) -> Written:
    """Store the rows of one task where no reader sees them before the driver's commit."""
    topics = sink.topics()
    output = StagedOutput(sink.url, sink.lsn)
    router = Router("murmur2", first_turn=task)
    for batch in batches:
        for topic, records in _by_topic(batch, sink.topic, topics):
            rows = _rows(topic, records)
            routes = router.routes(topic, rows)
            refused = unstorable(topic, rows, routes)
            if refused is not None:
                raise why_unstorable(topic, rows, routes, int(refused.argmax()))
            output.add(split(topic, rows, routes))
    staged, small = output.finish()
    return Written(staged, small, query)


def _rows(topic: Topic, batch: pa.RecordBatch) -> Rows:
    now = SYSTEM.now_us()
    typed = rows_of_sink(topic, batch, now)
    if typed is not None:
        return typed
    records = _plain(batch)
    _check_headers(records)
    return rows_of_arrow(records, now)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that an untyped topic takes."""
    return batch.select([name for name in _RECORD_COLUMNS if name in batch.schema.names])


def _by_topic(
    batch: pa.RecordBatch, chosen: str | None, topics: StoreState
) -> Iterator[tuple[Topic, pa.RecordBatch]]:
    if not batch.num_rows:
        return
    if chosen is not None:
        yield topics.topic(chosen), batch
        return
    names = batch.column("topic")
    if names.null_count:
        raise InvalidRequestError(
            "column 'topic' is null in a row: give every row a topic, or all of them one by "
            "option 'topic'",
            column="topic",
        )
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        topic = topics.topic(name)
        if topic.settings.schemas:
            raise InvalidRequestError(
                f"topic {name} is typed: write to it with option 'topic', not by a column",
                topic=name,
            )
        yield topic, _having(_plain(batch), codes == code)


def _having(
    records: pa.RecordBatch, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.RecordBatch:
    return records if rows.all() else records.filter(pa.array(rows))


def _check_headers(records: pa.RecordBatch) -> None:
    if "headers" not in records.schema.names:
        return
    members = records.column("headers").flatten()
    if members.null_count or members.field("key").null_count:
        raise InvalidRequestError(
            "column 'headers' holds a header without a name", column="headers"
        )
