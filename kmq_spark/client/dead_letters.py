"""Dead letters: records that move from one queue to another, with where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kmq_spark.client.encoding import rows_of_columns
from kmq_spark.client.queue_delivery import Delivery
from kmq_spark.client.record import Record
from kmq_spark.client.routing import split
from kmq_spark.client.values import checked_extras
from kmq_storage.format.entries import Entry
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.queue_state import Queue
from kmq_storage.log.staging import Stager, file_ids
from kmq_storage.log.topic_state import Topic

#: Why a record is a dead letter that nobody rejected.
TOO_OFTEN = "max_deliveries"


def origin(queue: str, delivery: Delivery, reason: str) -> Mapping[str, Any]:
    """The properties that say where a dead letter comes from, besides its own."""
    facts = {
        **delivery.properties,
        "dead_letter_queue": queue,
        "dead_letter_partition": delivery.partition,
        "dead_letter_offset": delivery.offset,
        "dead_letter_count": delivery.delivery_count,
        "dead_letter_reason": reason,
    }
    facts.pop("dead_letter_topic", None)
    return facts if delivery.topic is None else facts | {"dead_letter_topic": delivery.topic}


def moving(
    log: CommitLog,
    target: Queue,
    records: Sequence[tuple[Record, Mapping[str, Any]]],
    *entries: Entry,
) -> Unit:
    """Records with these properties for a queue's own log, and what is committed with them."""
    topic = log.state.topic_by_id(target.id)
    assert topic is not None, "every queue has a log of its own"
    letters = [(each, _bytes_of(each.value), properties) for each, properties in records]
    unit = letters_unit(log, topic, 0, letters)
    return replace(unit, entries=(*unit.entries, *entries))


def letters_unit(
    log: CommitLog,
    topic: Topic,
    partition: int,
    letters: Sequence[tuple[Record, bytes | None, Mapping[str, Any]]],
) -> Unit:
    """What commits records as they were, but with these values and properties."""
    rows = rows_of_columns(
        [value for _, value, _ in letters],
        [record.key for record, _, _ in letters],
        np.array([record[7] for record, _, _ in letters], np.int64),
        {
            row: checked_extras(record.headers or None, properties or None, None, None)
            for row, (record, _, properties) in enumerate(letters)
        },
    )
    stager = Stager(log.files, file_ids(log), sync=log.durable)
    placed = [
        stager.place(each, room=log.inline_bytes_max) for each in split(topic, rows, partition)
    ]
    return Unit(
        tuple(entry for each in placed for entry in each.entries),
        tuple(body for each in placed for body in each.bodies),
        synced=log.durable,
    )


def _bytes_of(value: Any) -> bytes | None:
    """The value of a record: of a typed one as JSON, since a queue's own log has no columns."""
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, default=_plain, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)
