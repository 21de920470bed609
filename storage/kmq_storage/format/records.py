"""Record batches: their Arrow schemas, and the way to bytes and back.

A stored batch has `timestamp` and `value`, and of `key`, `headers` and `properties` only
those that some row has; topic and partition are the commit's, not the batch's, and so is the
offset until the batch is sealed into a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import pyarrow as pa

from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import checksum

KEY, HEADERS, PROPERTIES, OFFSET = 1, 2, 4, 8
#: In the row of a segment: its keys were compacted.
COMPACTED = 1 << 15
#: What the batches of a segment have.
SEALED = OFFSET | KEY | HEADERS | PROPERTIES

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PROPERTY_TYPE = pa.struct(
    [
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("bool", pa.bool_()),
    ]
)
PROPERTIES_TYPE = pa.map_(pa.string(), PROPERTY_TYPE)

_FIELDS = (
    (OFFSET, pa.field("offset", pa.int64())),
    (0, pa.field("timestamp", TIMESTAMP_TYPE)),
    (KEY, pa.field("key", pa.binary())),
    (0, pa.field("value", pa.binary())),
    (HEADERS, pa.field("headers", HEADERS_TYPE)),
    (PROPERTIES, pa.field("properties", PROPERTIES_TYPE)),
)
_FLAG_OF = {field.name: flag for flag, field in _FIELDS}


@cache
def stored_schema(columns: int) -> pa.Schema:
    """The schema of a stored batch with these columns (KEY, HEADERS, PROPERTIES, OFFSET)."""
    return pa.schema([field for flag, field in _FIELDS if not flag or flag & columns])


def columns_of(schema: pa.Schema) -> int:
    """Which optional columns a schema has."""
    return sum(_FLAG_OF[name] for name in schema.names)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch as bytes, with what the commit's directory says of it."""

    message: pa.Buffer
    rows: int
    columns: int
    checksum: int
    min_timestamp: int
    max_timestamp: int
    size: int


def encode_batch(batch: pa.RecordBatch, *, size: int) -> EncodedBatch:
    """Serialise a batch of the stored schema (rows >= 1) as one Arrow IPC message.

    `size` is the number of bytes of keys, values, headers and properties.
    """
    low, high = timestamp_bounds(batch)
    message = batch.serialize()
    return EncodedBatch(
        message, batch.num_rows, columns_of(batch.schema), checksum(message), low, high, size
    )


def timestamp_bounds(batch: pa.RecordBatch) -> tuple[int, int]:
    """The lowest and highest timestamp of a stored batch, in UTC microseconds."""
    microseconds = batch.column("timestamp").view(pa.int64()).to_numpy()
    return int(microseconds.min()), int(microseconds.max())


def decode_batch(message: pa.Buffer, columns: int, expected: int, where: str) -> pa.RecordBatch:
    """The record batch of a message, without copying; CorruptionError when its bytes changed."""
    if checksum(message) != expected:
        raise CorruptionError(f"record batch checksum does not match in {where}")
    try:
        return pa.ipc.read_record_batch(message, stored_schema(columns))
    except (pa.ArrowException, OSError) as error:
        raise CorruptionError(f"record batch can't be decoded in {where}: {error}") from error


def sealed_batch(batch: pa.RecordBatch, offsets: pa.Array) -> pa.RecordBatch:
    """A stored batch with every column of a segment; those it lacks are null."""
    schema, names = stored_schema(SEALED), batch.schema.names
    columns = [
        batch.column(field.name) if field.name in names else null_column(field.type, batch.num_rows)
        for field in schema
        if field.name != "offset"
    ]
    return pa.RecordBatch.from_arrays([offsets, *columns], schema=schema)


def null_column(kind: pa.DataType, rows: int) -> pa.Array:
    """A column of nulls that takes little room in a file, other than what `pa.nulls` makes."""
    return _nulls(kind, 1 << max(rows - 1, 0).bit_length()).slice(0, rows)


@lru_cache(maxsize=16)
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    return pa.array([None], kind).take(pa.array(np.zeros(rows, np.int32)))
