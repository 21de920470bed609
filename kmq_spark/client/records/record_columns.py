"""From stored record batches to the Arrow columns that readers get, of topics of both kinds.

In a typed topic, the columns of kmq beside its own have names that begin with `_`.
"""

from __future__ import annotations

import pyarrow as pa

from kmq_spark.client.records.constant_columns import constant
from kmq_spark.client.records.declared_columns import declared
from kmq_storage.format.layout import Layout
from kmq_storage.format.records import HEADERS_TYPE, PROPERTIES_TYPE, TIMESTAMP_TYPE, is_typed
from kmq_storage.log.reading.scan import Slice

_PLAIN = pa.schema(
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
_BESIDE_OWN = [
    _PLAIN.field(name).with_name(f"_{name}")
    for name in ("topic", "partition", "offset", "timestamp", "key", "headers", "properties")
]
#: Columns that are not stored, in untyped and in typed topics.
_MADE = (("offset", "topic", "partition"), ("_offset", "_topic", "_partition"))


def public_schema(layout: Layout) -> pa.Schema:
    """The columns that readers of a topic get."""
    own = layout.schema
    return _PLAIN if own is None else pa.schema([*own, *_BESIDE_OWN], metadata=own.metadata)


def public_batches(part: Slice, schema: pa.Schema) -> list[pa.RecordBatch]:
    """A slice of a partition with the columns of a schema (all or some of the public ones).

    One batch, or several when a dictionary's indices are too narrow for all its values.
    """
    made = _MADE[is_typed(part.batch.schema)]
    try:
        columns = [_column(part, field, made) for field in schema]
    except pa.ArrowInvalid:
        if part.batch.num_rows == 1:
            raise
        halves = part.cut(part.batch.num_rows // 2)
        return [batch for half in halves for batch in public_batches(half, schema)]
    return [pa.RecordBatch.from_arrays(columns, schema=schema)]


def _column(part: Slice, field: pa.Field, made: tuple[str, str, str]) -> pa.Array:
    name, kind, batch = field.name, field.type, part.batch
    offset, topic, _ = made
    if name == offset:
        return part.offset_column()
    if name in made:
        value = part.topic if name == topic else part.partition
        return constant(value, kind, batch.num_rows)
    position = batch.schema.get_field_index(name)
    return declared(batch.column(position), kind) if position >= 0 else pa.nulls(len(batch), kind)
