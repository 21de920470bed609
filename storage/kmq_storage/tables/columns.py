"""The columns of the tables, with the types that they have in Spark.

docs/spark-tables.md documents them, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

_INSTANT = pa.timestamp("us", tz="UTC")
_TOPIC = (("topic", pa.string()), ("partition", pa.int32()))

#: One entry of a commit; fields that a kind of entry doesn't have are null.
_ENTRY = pa.struct(
    [
        ("kind", pa.string()),
        *_TOPIC,
        ("base_offset", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("topic_id", pa.string()),
        ("name", pa.string()),
        ("number", pa.int64()),
    ]
)

#: The columns of each table, by its name.
COLUMNS: dict[str, pa.Schema] = {
    "topics": pa.schema(
        [
            ("topic", pa.string()),
            ("topic_id", pa.string()),
            ("partitions", pa.int32()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("schema", pa.string()),
            ("cleanup", pa.string()),
            ("retention_seconds", pa.float64()),
            ("retention_bytes", pa.int64()),
            ("capacity", pa.int64()),
            ("max_record_bytes", pa.int64()),
            ("uniq_window_seconds", pa.float64()),
            ("compression", pa.string()),
        ]
    ),
    "partitions": pa.schema(
        [
            *_TOPIC,
            ("start", pa.int64()),
            ("end", pa.int64()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
        ]
    ),
    "groups": pa.schema(
        [
            ("group", pa.string()),
            ("generation", pa.int64()),
            *_TOPIC,
            ("committed", pa.int64()),
            ("end", pa.int64()),
            ("lag", pa.int64()),
            ("lag_bytes", pa.int64()),
            ("lag_seconds", pa.float64()),
        ]
    ),
    "members": pa.schema(
        [
            ("group", pa.string()),
            ("name", pa.string()),
            ("client", pa.string()),
            ("joined", _INSTANT),
            ("assignment", pa.map_(pa.string(), pa.list_(pa.int32()))),
            ("epoch", pa.int64()),
        ]
    ),
    "segments": pa.schema(
        [
            *_TOPIC,
            ("base_offset", pa.int64()),
            ("end_offset", pa.int64()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("kind", pa.string()),
            ("file", pa.string()),
            ("file_bytes", pa.int64()),
            ("min_timestamp", _INSTANT),
            ("max_timestamp", _INSTANT),
            ("committed", _INSTANT),
            ("compacted", pa.bool_()),
        ]
    ),
    "commits": pa.schema([("lsn", pa.int64()), ("time", _INSTANT), ("entries", pa.list_(_ENTRY))]),
    "queues": pa.schema(
        [
            ("queue", pa.string()),
            ("topics", pa.list_(pa.string())),
            *((name, pa.int64()) for name in ("ready", "locked", "delayed")),
            *((name, pa.int64()) for name in ("delivered", "acked", "dead", "expired")),
        ]
    ),
}


def table_batch(table: str, rows: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """The rows of a table as a record batch; instants are given in UTC microseconds."""
    schema = COLUMNS[table]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
