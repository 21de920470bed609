"""From stored columns to declared types and back: dictionaries and views at any depth.

A dictionary's values are in the order of their first use in one batch.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyarrow import types

from kmq_spark.client.records.beneath import beneath
from kmq_storage.format.typed import stored_type

#: Indices of this many bits have room for more values than one record can hold.
_WIDE_BITS = 32
#: Why a value is refused that `has_room` denies.
NO_ROOM = "has more different values in one record than the index of its dictionary can count"


def declared(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A stored column in its declared type; ArrowInvalid when a dictionary has no room for it."""
    if column.type == kind:
        return column
    if types.is_dictionary(kind):
        return _encoded(column, kind)
    if types.is_dictionary(column.type):
        return declared(column.dictionary_decode(), kind)
    if types.is_nested(kind):
        return _nested(column, kind)
    return column.cast(kind)


def stored(column: pa.Array) -> pa.Array:
    """A column of any type in its stored type; ArrowException when its dictionaries are wrong.

    Indices beneath a null struct may be: Arrow itself writes such.
    """
    return declared(column, stored_type(column.type))


def has_room(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether each row of a stored column has its declared type, if need be on its own.

    One row may hold more values than the narrow indices of a dictionary inside of it can tell.
    """
    if not has_narrow_parts(kind):
        return True
    try:
        declared(column, kind)
    except pa.ArrowInvalid:
        half = len(column) // 2
        return half > 0 and has_room(column[:half], kind) and has_room(column[half:], kind)
    return True


def has_narrow_parts(kind: Any) -> bool:
    """Whether dictionaries inside of this type have indices that one record can use up."""
    if types.is_map(kind):
        return _is_narrow(kind.key_type) or _is_narrow(kind.item_type)
    if not types.is_nested(kind):
        return False
    return any(_is_narrow(kind.field(number).type) for number in range(kind.num_fields))


def _is_narrow(kind: Any) -> bool:
    if types.is_dictionary(kind):
        return bool(kind.index_type.bit_width < _WIDE_BITS)
    return has_narrow_parts(kind)


def _encoded(column: pa.Array, kind: pa.DictionaryType) -> pa.Array:
    encoded = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(kind.index_type),
        declared(encoded.dictionary, kind.value_type),
        ordered=kind.ordered,
    )


def _nested(column: Any, kind: Any) -> pa.Array:
    mask = column.is_null() if column.null_count else None
    if types.is_struct(kind):
        pairs = zip(column.flatten(), kind, strict=True)
        parts = [declared(values, part.type) for values, part in pairs]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if types.is_fixed_size_list(kind):
        return _fixed_lists(column, kind, mask)
    offsets, parts = _from_zero(column), beneath(column)
    if types.is_map(kind):
        keys, items = map(declared, parts, (kind.key_type, kind.item_type))
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    lists = pa.LargeListArray if types.is_large_list(kind) else pa.ListArray
    values = declared(parts[0], kind.value_type)
    return lists.from_arrays(offsets, values, type=kind, mask=mask)


def _from_zero(column: Any) -> pa.Array:
    """The offsets of lists or maps, counted from the first item of them."""
    if not len(column):
        return pa.array([0], column.offsets.type)
    offsets = column.offsets.to_numpy()
    return pa.array(cast(Any, np.subtract(offsets, offsets[0])))


def _fixed_lists(column: Any, kind: Any, mask: pa.Array | None) -> pa.Array:
    length = kind.list_size
    if not length:
        return pa.array(column.to_pylist(), pa.list_(stored_type(kind.value_type), 0)).cast(kind)
    if mask is None or stored_type(column.type) == column.type:
        values = declared(beneath(column)[0], kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    # Beneath a null there may be anything, also indices into a dictionary without values.
    none = np.repeat(mask.to_numpy(zero_copy_only=False), length)
    places = pa.array(np.cumsum(~none) - 1, mask=none)
    values = declared(column.flatten(), kind.value_type).take(places)
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
