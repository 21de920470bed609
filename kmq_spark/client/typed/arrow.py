"""Arrow data for typed topics: which columns and types a topic takes, and its rows from them.

Own columns may have any type of the same kind whose values all fit; kinds are never mixed, so no
text becomes a number, and no naive instant one with a zone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from kmq_spark.client.encoding.arrow_extras import check_valid, sizes_of
from kmq_spark.client.encoding.routing import Rows
from kmq_spark.client.encoding.rows import (
    binary_lengths,
    cast_column,
    check_added,
    chosen_partitions,
    filled_timestamps,
)
from kmq_spark.client.records.declared_columns import NO_ROOM, has_room, stored
from kmq_spark.client.typed.decimals import keeps_decimals
from kmq_spark.client.typed.nulls import check_no_nulls
from kmq_spark.client.typed.rows import typed_batch
from kmq_spark.client.typed.scalars import is_bytes, is_text
from kmq_spark.client.typed.sizes import value_sizes
from kmq_spark.client.typed.topics import TypedColumns
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.evolution import is_wider
from kmq_storage.format.typed import is_own, stored_type
from kmq_storage.names import nearest

#: Columns that data may have beside a topic's own.
ADDED = ("_key", "_partition", "_timestamp", "_headers", "_properties")


def check_typed_columns(schema: pa.Schema, topic: str, columns: TypedColumns) -> None:
    """InvalidRequestError, naming the column, unless the topic can take these names and types."""
    known = dict.fromkeys((*columns.declared.names, *ADDED))
    for name, times in Counter(schema.names).items():
        if name not in known:
            listed = ", ".join(known)
            if name.startswith("__index_level_"):
                listed += "; pandas.DataFrame.reset_index(drop=True) drops such an index"
            raise _wrong(topic, name, f"is unknown{nearest(name, known)}; known are {listed}")
        if times > 1:
            raise _wrong(topic, name, "is there twice")
    for field in columns.declared:
        position = schema.get_field_index(field.name)
        if position < 0 and not field.nullable:
            raise _wrong(topic, field.name, "is missing, but not nullable")
        if position >= 0 and not _fits(stored_type(schema.field(position).type), _stored(field)):
            kind = schema.field(position).type
            raise _wrong(topic, field.name, f"of type {kind} is not {field.type}: cast it first")


def _stored(field: pa.Field) -> pa.DataType:
    return stored_type(field.type)


def _wrong(topic: str, column: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"column {column!r} for topic {topic} {why}", topic=topic, column=column
    )


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type can be those of another, as far as types tell."""
    if given == wanted or types.is_null(given) or is_wider(given, wanted):
        return True
    if types.is_struct(wanted):
        return _fits_struct(given, wanted)
    if types.is_map(wanted):
        return types.is_map(given) and (
            _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
        )
    if is_list(wanted):
        return is_list(given) and _fits(given.value_type, wanted.value_type)
    if types.is_timestamp(wanted):
        return types.is_timestamp(given) and (given.tz is None) == (wanted.tz is None)
    return any(is_kind(given) and is_kind(wanted) for is_kind in _KINDS)


def _fits_struct(given: pa.DataType, wanted: pa.StructType) -> bool:
    if not types.is_struct(given) or [f.name for f in given] != [f.name for f in wanted]:
        return False
    return all(_fits(one.type, other.type) for one, other in zip(given, wanted, strict=True))


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists, of one length or of any."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


#: Kinds of types: a cast inside a kind is checked value by value, and loses nothing.
_KINDS = (
    types.is_integer,
    types.is_decimal,
    types.is_date,
    types.is_time,
    types.is_duration,
    is_text,
    is_bytes,
)


def in_typed_columns(batch: pa.RecordBatch, topic: str, columns: TypedColumns) -> pa.RecordBatch:
    """The same columns in stored types, checked; missing ones are null."""
    check_typed_columns(batch.schema, topic, columns)
    arrays = {field.name: _own_column(batch, topic, field) for field in columns.declared}
    for name in batch.schema.names:
        if not is_own(name):
            arrays[name] = cast_column(name, batch.column(name))
    check_added(arrays, "_")
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _own_column(batch: pa.RecordBatch, topic: str, field: pa.Field) -> pa.Array:
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        return pa.nulls(batch.num_rows, _stored(field))
    column = _cast(topic, _in_stored_type(batch.column(position), field.name), field)
    check_no_nulls(topic, column, field)
    if not has_room(column, field.type):
        raise _wrong(topic, field.name, NO_ROOM)
    return column


def _in_stored_type(column: pa.Array, name: str) -> pa.Array:
    if types.is_dictionary(column.type):
        check_valid(column, name)
    try:
        column = stored(column)
    except pa.ArrowException as error:
        raise InvalidRequestError(
            f"column {name!r} is no valid Arrow data: {error}", column=name
        ) from error
    check_valid(column, name)
    return column


def _cast(topic: str, column: pa.Array, field: pa.Field) -> pa.Array:
    wanted = _stored(field)
    if column.type == wanted:
        return column
    if types.is_null(column.type):
        return pa.nulls(len(column), wanted)
    why = f"of type {column.type} is not {field.type}"
    try:
        found = column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _wrong(topic, field.name, f"{why}: {error}") from error
    if not keeps_decimals(column, found):
        raise _wrong(topic, field.name, f"{why}: a decimal doesn't fit")
    return found


def rows_of_typed_arrow(
    whole: pa.RecordBatch, columns: TypedColumns, now: int, partition: int | None
) -> Rows:
    """Rows from a checked batch, as `encoding.rows_of_arrow` makes them of an untyped topic."""
    own = {name: whole.column(name) for name in columns.declared.names}
    added = {
        name[1:]: whole.column(name)
        for name in ADDED
        if name in whole.schema.names and whole.column(name).null_count < whole.num_rows
    }
    partitions = added.pop("partition", None)
    sizes: Any = sum(map(value_sizes, own.values()))
    if "key" in added:
        sizes = sizes + binary_lengths(added["key"])
    for name in ("headers", "properties"):
        if name in added:
            sizes = sizes + sizes_of(added[name])
    added["timestamp"] = filled_timestamps(added.get("timestamp"), whole.num_rows, now)
    default = -1 if partition is None else partition
    chosen = chosen_partitions(partitions, default, whole.num_rows)
    return Rows(typed_batch(added, own), np.asarray(sizes), chosen, columns.version)
