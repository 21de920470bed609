"""Records of a topic sent again: Arrow from end to end, a batch or two at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kmq_spark.client.records.record_columns import public_batches
from kmq_spark.client.records.record_values import records_of
from kmq_spark.client.sending.producer import Producer
from kmq_storage.format.records import has_value, is_typed
from kmq_storage.log.reading.scan import Slice

#: Columns that aren't sent: the target gives its own places. A typed topic may have columns of its
#: own with the names that they have in an untyped one.
_PLACE, _TYPED_PLACE = ("topic", "partition", "offset"), ("_topic", "_partition", "_offset")


def send_again(producer: Producer, target: str, schema: pa.Schema, parts: Iterable[Slice]) -> int:
    """Send all records of these slices to a topic, or to a queue's own log; return how many.

    The next slices are read while the last ones are stored.
    """
    sent, last = 0, None
    for part in parts:
        for future in _sends(producer, target, schema, part):
            if last is not None:
                last.result()
            last = future
        sent += part.rows
    if last is not None:
        last.result()
    return sent


def send_once(
    producer: Producer,
    target: str,
    schema: pa.Schema,
    parts: Iterable[Slice],
    place: tuple[str, str],
) -> int:
    """Send them, each slice in one commit with the offset behind it, for a group and a topic."""
    sent, (group, topic) = 0, place
    for part in parts:
        with producer.transaction() as transaction:
            list(_sends(producer, target, schema, part))
            transaction.commit_offsets({group: {topic: {part.partition: part.end}}})
        sent += part.rows
    return sent


def _sends(
    producer: Producer, target: str, schema: pa.Schema, part: Slice
) -> Iterator[Future[Any]]:
    place = _TYPED_PLACE if is_typed(part.batch.schema) else _PLACE
    for is_tombstone, some in _runs(part):
        if is_tombstone:
            yield _send_tombstones(producer, target, some)
            continue
        for batch in public_batches(some, schema):
            there = [name for name in place if name in batch.schema.names]
            yield producer._send_arrow(target, batch.drop_columns(there), None)


def _runs(part: Slice) -> Iterator[tuple[bool, Slice]]:
    """The slice, cut where tombstones begin and end; in untyped topics, a null tells them."""
    if not is_typed(part.batch.schema):
        yield False, part
        return
    lives = has_value(part.batch).to_numpy(zero_copy_only=False)
    ends = [*(np.flatnonzero(np.diff(lives)) + 1).tolist(), part.rows]
    start = 0
    for end in ends:
        yield not lives[start], replace(part, batch=part.batch.slice(start, end - start))
        start = end


def _send_tombstones(producer: Producer, target: str, part: Slice) -> Future[Any]:
    records = records_of(part)
    return producer.send_batch(
        target,
        [None] * part.rows,
        [record.key for record in records],
        headers=[record.headers or None for record in records],
        properties=[record.properties or None for record in records],
        timestamps=[record.timestamp for record in records],
    )
