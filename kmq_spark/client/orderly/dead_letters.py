"""Dead letters: records that a group gives up, kept in a topic of the group's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kmq_spark.client.dead_letters import letters_unit
from kmq_spark.client.record import Record
from kmq_spark.client.values import PropertyValue
from kmq_storage import topics
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic


def dead_letter_topic(group: str) -> str:
    """Where the dead letters of a group are."""
    return f"%DLQ%{group}"


def dead_letters(
    log: CommitLog, group: str, records: Sequence[Record], counts: Sequence[int], reason: str
) -> Unit:
    """What commits records of one partition as dead letters: as they were, and where from and why.

    The topic is made when it is missing. A dead letter is never too large for it.
    """
    topic, state = _topic(log, dead_letter_topic(group)), log.refresh()
    letters = []
    for record, count in zip(records, counts, strict=True):
        told: dict[str, PropertyValue] = {
            "dead_letter_group": group,
            "dead_letter_topic": str(record.topic),
            "dead_letter_partition": record.partition,
            "dead_letter_offset": record.offset,
            "dead_letter_count": count + 1,
            "dead_letter_reason": reason,
        }
        letters.append((record, _value(state, record), {**record.properties, **told}))
    return letters_unit(log, topic, records[0].partition % topic.partitions, letters)


def _topic(log: CommitLog, name: str) -> Topic:
    if log.refresh().find_topic(name) is None:
        topics.create_topic(log, name, 1, {}, exist_ok=True)
    return log.refresh().topic(name)


def _value(state: StoreState, record: Record) -> bytes | None:
    """The value; that of a typed record as an Arrow stream of its one row."""
    value: Any = record.value
    if not isinstance(value, dict):
        plain: bytes | None = value
        return plain
    topic = state.find_topic(str(record.topic))
    schema = topic.settings.schema if topic is not None else None
    row = pa.RecordBatch.from_pylist([value], schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    written: bytes = sink.getvalue().to_pybytes()
    return written
