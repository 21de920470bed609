"""Headers and properties as Arrow columns: their sizes, and the rules that `send` has for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from kmq_spark.client.records.values import MEMBERS
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.binary_columns import binary_column
from kmq_storage.format.plain_columns import (
    flags_of,
    number_column,
    numbers_of,
    text_column,
    value_lengths,
)
from kmq_storage.format.records import HEADERS_TYPE, PROPERTIES_TYPE, PROPERTY_TYPE

if TYPE_CHECKING:
    import numpy.typing as npt

Lengths: TypeAlias = "npt.NDArray[np.int64]"


#: For each row its names and values in turn; None without any.
Pairs: TypeAlias = "Sequence[tuple[Any, ...] | None]"

#: The member of the stored type for values of each type.
_KINDS = {kind: PROPERTY_TYPE.get_field_index(name) for kind, name in MEMBERS.items()}


def headers_column(rows: Pairs) -> pa.ListArray:
    """The headers of each row."""
    bounds, names, values = _flat(rows)
    members = [names, binary_column(values)]
    structs = pa.StructArray.from_arrays(members, fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(bounds, structs, HEADERS_TYPE)


def properties_column(rows: Pairs) -> pa.MapArray:
    """The properties of each row."""
    bounds, names, values = _flat(rows)
    kinds = np.frombuffer(bytes(map(_KINDS.__getitem__, map(type, values))), np.uint8)
    members = [_chosen(values, kinds == n, each.type) for n, each in enumerate(PROPERTY_TYPE)]
    structs = pa.StructArray.from_arrays(members, fields=list(PROPERTY_TYPE))
    return pa.MapArray.from_arrays(bounds, names, structs, PROPERTIES_TYPE)


def _chosen(values: Sequence[Any], chosen: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """The values that are chosen, null for all others."""
    count = np.count_nonzero(chosen)
    if count in (0, len(values)):
        return _column(values, kind) if count else pa.nulls(len(values), kind)
    found = _column(list(compress(values, chosen.tolist())), kind)
    return found.take(number_column(np.cumsum(chosen, dtype=np.int32) - 1, chosen))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return text_column(values)
    if pa.types.is_binary(kind):
        return binary_column(values)
    return number_column(np.array(values, kind.to_pandas_dtype()))


def _flat(rows: Pairs) -> tuple[pa.Array, pa.Array, list[Any]]:
    """Where each row begins among all pairs, null for one without; the names and values of all."""
    given, known = [row or () for row in rows], None
    if rows.count(None):
        known = np.array([*(row is not None for row in rows), True])
    flat = list(chain.from_iterable(given))
    bounds = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, given), np.int32, len(rows)), out=bounds[1:])
    return number_column(bounds // 2, known), text_column(flat[::2]), flat[1::2]


def sizes_of(column: pa.Array) -> Lengths:
    """The bytes of the headers or properties of every row, names included."""
    rows, names, members = _members(column)
    lengths = value_lengths(names)
    lengths = lengths + (
        _property_lengths(members) if pa.types.is_map(column.type) else value_lengths(members)
    )
    sizes: Lengths = np.bincount(rows, lengths, len(column)).astype(np.int64)
    return sizes


def check_valid(column: pa.Array, column_name: str) -> None:
    """InvalidRequestError for what Arrow accepts unchecked, above all text that is no UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            f"column {column_name!r} is no valid Arrow data: {error}", column=column_name
        ) from error


def check_headers(column: pa.Array, column_name: str) -> None:
    """InvalidRequestError for a header without a name, or with a name that is no valid text."""
    check_valid(column, column_name)
    _, names, _ = _members(column)
    if names.null_count:
        raise InvalidRequestError(
            f"column {column_name!r} holds a header without a name", column=column_name
        )


def check_properties(column: pa.Array, column_name: str) -> None:
    """InvalidRequestError for a property without name, without just one value, or given twice."""
    check_valid(column, column_name)
    rows, names, members = _members(column)
    if names.null_count or not value_lengths(names).all():
        _refuse_property(column_name, "without a name")
    values: Any = sum(_valid(member).astype(np.int64) for member in members.flatten())
    if not values.all():
        _refuse_property(column_name, "whose value is null")
    if (values != 1).any():
        _refuse_property(column_name, "that is not exactly one of int, float, text, bytes and bool")
    encoded = names.dictionary_encode()
    # Row and name as one number: to sort pairs takes ten times as long.
    pairs = rows * len(encoded.dictionary) + numbers_of(encoded.indices)
    if len(np.unique(pairs)) < len(pairs):
        _refuse_property(column_name, "that one row has twice")


def with_typed_values(column: pa.MapArray) -> pa.MapArray:
    """Return properties in the stored type; those of many tools have text as values."""
    if pa.types.is_struct(column.type.item_type):
        return column
    texts = column.items.cast(pa.string())
    values = [
        texts if field.name == "text" else pa.nulls(len(texts), field.type)
        for field in PROPERTY_TYPE
    ]
    entries = pa.StructArray.from_arrays(
        [
            column.keys.cast(pa.string()),
            pa.StructArray.from_arrays(values, fields=list(PROPERTY_TYPE)),
        ],
        fields=[PROPERTIES_TYPE.key_field, PROPERTIES_TYPE.item_field],
    )
    validity, offsets = column.buffers()[:2]
    return pa.Array.from_buffers(
        PROPERTIES_TYPE,
        len(column),
        [validity, offsets],
        offset=column.offset,
        children=[entries],
    )


def _refuse_property(column: str, which: str) -> None:
    raise InvalidRequestError(f"column {column!r} holds a property {which}", column=column)


def _members(column: pa.Array) -> tuple[Lengths, pa.Array, pa.Array]:
    """For all rows together: the row of each member, its name, and its value.

    By offsets, since list kernels of pyarrow refuse maps, and one of them aborts the process.
    """
    offsets = numbers_of(column.offsets)
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    names, members = (
        (column.keys, column.items)
        if pa.types.is_map(column.type)
        else (_field(column.values, "key"), _field(column.values, "value"))
    )
    return rows, names.slice(offsets[0], len(rows)), members.slice(offsets[0], len(rows))


def _field(structs: pa.StructArray, name: str) -> pa.Array:
    """A field that is null where its struct is."""
    return structs.flatten()[structs.type.get_field_index(name)]


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    return flags_of(column.is_valid())


def _property_lengths(members: pa.StructArray) -> Lengths:
    text, data = _field(members, "text"), _field(members, "bytes")
    fixed: Any = ~(_valid(text) | _valid(data))
    sizes: Lengths = value_lengths(text) + value_lengths(data) + 8 * fixed
    return sizes
