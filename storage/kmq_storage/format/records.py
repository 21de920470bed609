"""Record batches: their Arrow schemas, and encoding and decoding.

A stored batch has the columns `timestamp` and `value`, and `key`, `headers` and `properties` only
if some row has one. The commit has topic and partition, and also the offsets until the batch is
sealed into a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kmq_storage.errors import CorruptionError
from kmq_storage.format.checksum import checksum
from kmq_storage.format.packing import packed
from kmq_storage.format.pieces import message_pieces
from kmq_storage.format.plain_columns import flags_of, number_column

if TYPE_CHECKING:
    import numpy.typing as npt

KEY, HEADERS, PROPERTIES, OFFSET = 1, 2, 4, 8
#: Flags of a batch of a typed topic (`format.typed`), and of one with tombstones.
TYPED, TOMBSTONES = 16, 0x8000
#: A flag in the row of a segment whose keys were compacted.
COMPACTED = 0x4000
#: A flag of an untyped segment that is a run: its records are sorted by queue.
RUN = 0x2000
#: The optional columns of the batches in a segment.
SEALED = OFFSET | KEY | HEADERS | PROPERTIES
#: The columns that tell the queue of a keyed topic's record, and whether it is a message.
TELLING = frozenset({"key", "value"})

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


def is_run(columns: int) -> bool:
    """Whether these flags mark a run; in typed topics, the bit has another meaning."""
    return columns & (RUN | TYPED) == RUN


_FIELDS = (
    (OFFSET, pa.field("offset", pa.int64())),
    (0, pa.field("timestamp", TIMESTAMP_TYPE)),
    (KEY, pa.field("key", pa.binary())),
    (0, pa.field("value", pa.binary())),
    (HEADERS, pa.field("headers", HEADERS_TYPE)),
    (PROPERTIES, pa.field("properties", PROPERTIES_TYPE)),
)
_FLAG_OF = {field.name: flag for flag, field in _FIELDS}
_TYPED_FLAG_OF = {
    "_timestamp": TYPED,
    "_key": KEY,
    "_headers": HEADERS,
    "_properties": PROPERTIES,
    "_tombstone": TOMBSTONES,
    "_offset": OFFSET,
}


@cache
def stored_schema(columns: int) -> pa.Schema:
    """The schema of a stored batch with these columns (KEY, HEADERS, PROPERTIES, OFFSET)."""
    return pa.schema([field for flag, field in _FIELDS if not flag or flag & columns])


def is_typed(schema: pa.Schema) -> bool:
    """Whether a stored batch with this schema, or with some of its columns, is typed."""
    return _are_typed(tuple(schema.names))


@lru_cache(maxsize=1024)
def _are_typed(names: tuple[str, ...]) -> bool:
    return any(name.startswith("_") for name in names)


def columns_of(schema: pa.Schema) -> int:
    """The optional columns of a stored schema, as flags without a typed topic's version."""
    return _columns_of(tuple(schema.names))


@lru_cache(maxsize=1024)
def _columns_of(names: tuple[str, ...]) -> int:
    if _are_typed(names):
        return sum(_TYPED_FLAG_OF.get(name, 0) for name in names)
    return sum(_FLAG_OF[name] for name in names)


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """One of kmq's own columns in a stored batch, typed or not; None if the batch lacks it."""
    position = batch.schema.get_field_index(f"_{name}" if is_typed(batch.schema) else name)
    return batch.column(position) if position >= 0 else None


def keys_of(batch: pa.RecordBatch) -> pa.Array | None:
    """The keys of a stored batch; None when no row has one."""
    return column_of(batch, "key")


def offsets_of(batch: pa.RecordBatch) -> pa.Array | None:
    """The column of offsets of a stored batch; None if they follow from the first offset."""
    return column_of(batch, "offset")


def offset_of_row(batch: pa.RecordBatch, first: int, row: int) -> int:
    """The offset of a row of a batch that covers offsets from `first` on."""
    offsets = offsets_of(batch)
    return first + row if offsets is None else int(offsets[row].as_py())


def timestamps_of(batch: pa.RecordBatch) -> pa.Array:
    """The timestamps of a stored batch, in UTC microseconds."""
    column = column_of(batch, "timestamp")
    assert column is not None, "every record has a timestamp"
    return column.view(pa.int64())


def has_value(batch: pa.RecordBatch) -> pa.Array:
    """A mask of the rows of a stored batch that are no tombstones."""
    if not is_typed(batch.schema):
        return batch.column("value").is_valid()
    gone = column_of(batch, "tombstone")
    rows = np.ones(batch.num_rows, np.bool_)
    if gone is not None:
        rows = ~flags_of(gone)
    return number_column(rows)


def tombstones_of(batch: pa.RecordBatch) -> npt.NDArray[np.intp]:
    """The rows of a stored batch that have a key and no value."""
    keys = keys_of(batch)
    if keys is None or (not is_typed(batch.schema) and not batch.column("value").null_count):
        return np.zeros(0, np.intp)
    deleted = ~flags_of(has_value(batch))
    return np.flatnonzero(deleted & flags_of(keys.is_valid()))


def with_offsets(batch: pa.RecordBatch, offsets: pa.Array) -> pa.RecordBatch:
    """A stored batch with an added column of offsets."""
    if is_typed(batch.schema):
        return batch.append_column(pa.field("_offset", pa.int64()), offsets)
    return batch.add_column(0, pa.field("offset", pa.int64()), offsets)


def without_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A stored batch without its column of offsets."""
    position = batch.schema.get_field_index("_offset" if is_typed(batch.schema) else "offset")
    return batch if position < 0 else batch.remove_column(position)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch as bytes, with its facts for the commit's directory."""

    message: pa.Buffer
    rows: int
    columns: int
    checksum: int
    min_timestamp: int
    max_timestamp: int
    size: int


def encode_batch(batch: pa.RecordBatch, *, size: int, columns: int, proven: bool) -> EncodedBatch:
    """Serialise a batch of the stored schema (rows >= 1) as one Arrow IPC message.

    `size` is the number of bytes of keys, values, headers and properties. `columns` has the flags
    of the optional columns. With `proven`, checksums of single columns follow the message.
    """
    low, high = timestamp_bounds(batch)
    message, found = _message_with_parts(batch) if proven else _message(batch)
    return EncodedBatch(message, batch.num_rows, columns, found, low, high, size)


def _message(batch: pa.RecordBatch) -> tuple[pa.Buffer, int]:
    message = batch.serialize()
    return message, checksum(message)


def _message_with_parts(batch: pa.RecordBatch) -> tuple[pa.Buffer, int]:
    buffers, found = packed(message_pieces(batch), batch.schema).with_parts()
    return pa.py_buffer(b"".join(buffers)), found


def timestamp_bounds(batch: pa.RecordBatch) -> tuple[int, int]:
    """The lowest and highest timestamp of a stored batch, in UTC microseconds."""
    # `to_numpy` would import pandas, which takes longer than most commands.
    microseconds = np.from_dlpack(timestamps_of(batch))
    return int(np.min(microseconds)), int(np.max(microseconds))


def decode_batch(
    message: pa.Buffer, schema: pa.Schema, expected: int, where: str
) -> pa.RecordBatch:
    """The record batch of a message, without copying; CorruptionError when it is damaged."""
    if checksum(message) != expected:
        raise mismatch(where)
    return read_batch(message, schema, where)


def read_batch(message: pa.Buffer, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The record batch of a verified message, without copying."""
    try:
        return pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowException, OSError) as error:
        raise undecodable(where, error) from error


def mismatch(where: str) -> CorruptionError:
    """The error for a record batch with a wrong checksum."""
    return CorruptionError(f"record batch checksum does not match in {where}")


def undecodable(where: str, error: Exception) -> CorruptionError:
    """The error for a record batch that Arrow can't read although its checksum is right."""
    return CorruptionError(f"record batch can't be decoded in {where}: {error}")


def sealed_batch(batch: pa.RecordBatch, offsets: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """A stored batch with all columns of a segment's schema; missing ones are null."""
    return with_nulls(with_offsets(without_offsets(batch), offsets), schema)


def with_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with all columns of a schema; missing ones are null."""
    names = batch.schema.names
    columns = [
        batch.column(field.name)
        if field.name in names
        else _null_column(field.type, batch.num_rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_light_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with columns of lists and maps that are all null replaced by `_null_column`."""
    rows = batch.num_rows
    arrays = [
        _null_column(column.type, rows)
        if _is_list(column.type) and column.null_count == rows
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _is_list(kind: pa.DataType) -> bool:
    return isinstance(kind, (pa.ListType, pa.MapType))


@lru_cache(maxsize=16)
def _null_column(kind: pa.DataType, rows: int) -> pa.Array:
    """A column of nulls that takes less room in a file than that of `pa.nulls`.

    Lists and maps share their buffers, so that a segment has these only once.
    """
    if not _is_list(kind):
        return _nulls(kind, _rounded(rows)).slice(0, rows)
    zeros = _zeros(_rounded(rows))
    item = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else None
    children = [pa.nulls(0, item or kind.value_type)]  # `pa.array()` would import pandas
    return pa.Array.from_buffers(kind, rows, [zeros, zeros], children=children)


def _rounded(rows: int) -> int:
    return 1 << max(rows - 1, 0).bit_length()


@lru_cache(maxsize=16)
def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    one = pa.array([None], kind) if pa.types.is_nested(kind) else pa.nulls(1, kind)
    return one.take(pa.Array.from_buffers(pa.int32(), rows, [None, _zeros(rows)]))


@lru_cache(maxsize=16)
def _zeros(rows: int) -> pa.Buffer:
    """Zeros, as validity bits of nulls or as offsets of empty lists."""
    return pa.py_buffer(bytes(4 * (rows + 1)))
