"""What a queue has not finished, as Arrow: a row per record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kmq_spark.client.records.constant_columns import constant
from kmq_storage.arrays import Array
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.plain_columns import number_column, text_column
from kmq_storage.format.records import TIMESTAMP_TYPE
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.queues.rows import LOCKED, NEVER
from kmq_storage.names import users_topic
from kmq_storage.queues.looking import entering_later
from kmq_storage.queues.slips import with_notes

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("state", pa.string()),
        ("delivery_count", pa.int32()),
        ("available_at", TIMESTAMP_TYPE),
        ("expires_at", TIMESTAMP_TYPE),
        ("priority", pa.int32()),
    ]
)
_STATES = ("ready", "locked", "delayed")


def state_table(log: CommitLog, queue: Queue) -> pa.Table:
    """The unfinished records of a queue, by partition and offset."""
    queue = with_notes(log, queue)
    state = log.state
    now = log.now_us()
    entering = entering_later(log, ChunkReader(log.files), queue)
    batches = []
    for key, (_, end) in spans_of(state, queue).items():
        topic = state.topic_by_id(key[0])
        rows = queue.unfinished(key, end, now, entering.get(key))
        name = None if topic is None else users_topic(topic.name)
        batches.append(_batch(name, key[1], rows, now))
    return pa.Table.from_batches(batches, SCHEMA)


def _batch(topic: str | None, partition: int, rows: Array, now: int) -> pa.RecordBatch:
    count = len(rows)
    ahead = rows["at"] > now
    states = np.where(ahead, np.where(rows["state"] == LOCKED, 1, 2), 0)
    columns: list[Any] = [
        constant(topic, pa.string(), count),
        constant(partition, pa.int32(), count),
        number_column(rows["offset"]),
        text_column(_STATES).take(number_column(states)),
        number_column(times_of(rows["count"]).astype(np.int32)),
        _instants(rows["at"], ~ahead),
        _instants(rows["expires"], rows["expires"] == NEVER),
        number_column(rows["priority"].astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _instants(column: Array, missing: Array) -> pa.Array:
    return number_column(column, ~missing).view(TIMESTAMP_TYPE)
