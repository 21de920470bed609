"""From stored record batches to what readers get: records, or Arrow with all columns."""

from __future__ import annotations

from itertools import count, repeat

import pyarrow as pa

from kmq_spark.client.constant_columns import constant
from kmq_spark.client.record import Record
from kmq_spark.client.record_extras import NO_PROPERTIES, plain_headers, plain_properties
from kmq_spark.client.typed_columns import typed_batches, typed_public_schema, typed_values
from kmq_storage.format.layout import Layout
from kmq_storage.format.records import HEADERS_TYPE, PROPERTIES_TYPE, TIMESTAMP_TYPE, is_typed
from kmq_storage.log.few_records import FewRecords, Part
from kmq_storage.log.scan import Slice

PUBLIC_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("headers", HEADERS_TYPE),
        ("properties", PROPERTIES_TYPE),
    ]
)
_STORED = ("key", "value", "timestamp", "headers", "properties")


def public_schema(layout: Layout) -> pa.Schema:
    """The columns that readers of a topic get."""
    return PUBLIC_SCHEMA if layout.schema is None else typed_public_schema(layout.schema)


def public_batches(part: Slice, schema: pa.Schema) -> list[pa.RecordBatch]:
    """A slice of a partition with the columns of a schema (all or some of the public ones)."""
    if is_typed(part.batch.schema):
        return typed_batches(part, schema)
    return [public_batch(part, schema)]


def public_batch(part: Slice, schema: pa.Schema = PUBLIC_SCHEMA) -> pa.RecordBatch:
    """A slice of an untyped topic with the columns of a schema (all or some of PUBLIC_SCHEMA)."""
    return pa.RecordBatch.from_arrays(
        [_column(part, field.name, field.type) for field in schema], schema=schema
    )


def _column(part: Slice, name: str, kind: pa.DataType) -> pa.Array:
    batch, rows = part.batch, part.batch.num_rows
    if name in _STORED:
        position = batch.schema.get_field_index(name)
        return batch.column(position) if position >= 0 else pa.nulls(rows, kind)
    if name == "offset":
        return pa.array(part.offsets())
    return constant(part.topic if name == "topic" else part.partition, kind, rows)


def records_of(part: Part) -> list[Record]:
    """Records of a partition as values."""
    if isinstance(part, FewRecords):
        return _few_records(part)
    batch = part.batch
    columns = {field.name: batch.column(n) for n, field in enumerate(batch.schema)}
    typed = is_typed(batch.schema)
    prefix = "_" if typed else ""
    keys, headers, properties = (
        columns.get(prefix + name) for name in ("key", "headers", "properties")
    )
    return list(
        map(
            Record,
            zip(
                repeat(part.topic),
                repeat(part.partition),
                part.offsets().tolist(),
                repeat(None) if keys is None else keys.to_pylist(),
                typed_values(columns) if typed else columns["value"].to_pylist(),
                repeat(()) if headers is None else map(plain_headers, headers.to_pylist()),
                repeat(NO_PROPERTIES)
                if properties is None
                else map(plain_properties, properties.to_pylist()),
                columns[f"{prefix}timestamp"].view(pa.int64()).to_pylist(),
                repeat(None),
            ),
        )
    )


def _few_records(part: FewRecords) -> list[Record]:
    plain = part.plain
    return [
        Record((part.topic, part.partition, offset, key, value, (), NO_PROPERTIES, time, None))
        for offset, key, value, time in zip(
            count(part.offset), plain.keys or repeat(None), plain.values, plain.timestamps
        )
    ]
