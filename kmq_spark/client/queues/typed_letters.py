"""Records of typed topics where there are no columns for them, as among dead letters.

Such a letter has its one row as an Arrow stream, and a property that marks it. So its receiver gets
the same value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kmq_spark.client.queues.delivery import Delivery
from kmq_spark.client.records.plain_values import plain_values
from kmq_spark.client.records.record import Record
from kmq_storage.log.state.store_state import StoreState

#: The property of a letter whose value is a row.
IS_ROW = "dead_letter_is_row"


class LetterRow(dict[str, Any]):
    """The row of a letter, with its stream, as it may become a letter again."""

    __slots__ = ("stream",)

    def __init__(self, stream: bytes) -> None:
        """ValueError for bytes that are no stream of one row: any program may have sent them."""
        row = pa.ipc.open_stream(stream).read_all()
        row.validate(full=True)  # else its arrays could read beyond the bytes
        if row.num_rows != 1:
            raise ValueError(f"the stream has {row.num_rows} rows")
        columns = zip(row.column_names, row.columns, strict=True)
        super().__init__((name, plain_values(column)[0]) for name, column in columns)
        self.stream = stream


def letter_value(state: StoreState, record: Record) -> tuple[bytes | None, Mapping[str, Any]]:
    """The value of a record as a letter has it, and the properties that it needs for that."""
    value: Any = record.value
    if not isinstance(value, dict):
        plain: bytes | None = value
        return plain, {}
    if isinstance(value, LetterRow):
        return value.stream, {IS_ROW: True}
    row = pa.RecordBatch.from_pylist([value], _schema(state, record))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    return sink.getvalue().to_pybytes(), {IS_ROW: True}


def _schema(state: StoreState, record: Record) -> pa.Schema | None:
    if isinstance(record, Delivery):
        topic = state.topic_by_id(record.place[0][0])
    else:
        topic = state.find_topic(str(record.topic))
    return topic.settings.schema if topic is not None else None


def with_row(record: Delivery) -> Delivery:
    """A record of a queue's own log, which may be a letter, with the value that it had."""
    if IS_ROW not in record.properties or not isinstance(record.value, bytes):
        return record
    try:
        row = LetterRow(record.value)
    except (pa.ArrowException, OSError, ValueError, LookupError):  # a property of another program
        return record
    return type(record)((*record[:4], row, *record[5:]))
