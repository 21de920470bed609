"""From stored batches of typed topics to what readers get: Arrow in declared types, or records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from kmq_spark.client.constant_columns import constant
from kmq_spark.client.plain_values import plain_values
from kmq_storage.format.records import HEADERS_TYPE, PROPERTIES_TYPE, TIMESTAMP_TYPE
from kmq_storage.format.typed import is_own
from kmq_storage.log.scan import Slice

_ADDED = [
    pa.field("_topic", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", TIMESTAMP_TYPE),
    pa.field("_key", pa.binary()),
    pa.field("_headers", HEADERS_TYPE),
    pa.field("_properties", PROPERTIES_TYPE),
]


def typed_public_schema(own: pa.Schema) -> pa.Schema:
    """The columns that readers of a typed topic get: its own, and those of kmq."""
    return pa.schema([*own, *_ADDED], metadata=own.metadata)


def typed_batches(part: Slice, schema: pa.Schema) -> list[pa.RecordBatch]:
    """A slice of a typed topic with the columns of a schema (all or some of the public ones).

    One batch, or several when a dictionary's indices are too narrow for all its values.
    """
    try:
        columns = [_column(part, field) for field in schema]
    except pa.ArrowInvalid:
        if part.batch.num_rows == 1:
            raise
        halves = part.cut(part.batch.num_rows // 2)
        return [batch for half in halves for batch in typed_batches(half, schema)]
    return [pa.RecordBatch.from_arrays(columns, schema=schema)]


def _column(part: Slice, field: pa.Field) -> pa.Array:
    batch, rows = part.batch, part.batch.num_rows
    if field.name == "_offset":
        return pa.array(part.offsets())
    if field.name in ("_topic", "_partition"):
        value = part.topic if field.name == "_topic" else part.partition
        return constant(value, field.type, rows)
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        return pa.nulls(rows, field.type)
    return _declared(batch.column(position), field.type)


def _declared(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A stored column in its declared type; ArrowInvalid when a dictionary has no room for it."""
    if column.type == kind:
        return column
    if not types.is_dictionary(kind):
        return column.cast(kind)
    encoded = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(kind.index_type),
        _declared(encoded.dictionary, kind.value_type),
        ordered=kind.ordered,
    )


def typed_values(columns: dict[str, pa.Array]) -> list[dict[str, Any] | None]:
    """The values of records of a typed topic: dicts, None for a tombstone."""
    names = [name for name in columns if is_own(name)]
    members = zip(*(plain_values(columns[name]) for name in names), strict=True)
    values: list[dict[str, Any] | None] = [dict(zip(names, row, strict=True)) for row in members]
    if "_tombstone" in columns:
        gone = columns["_tombstone"].to_pylist()
        return [None if dead else row for dead, row in zip(gone, values, strict=True)]
    return values
