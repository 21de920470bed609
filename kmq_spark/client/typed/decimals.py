"""Casts of decimals are checked here: in Arrow's, a number that is too large may become another."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from kmq_spark.client.records.beneath import beneath


def keeps_decimals(column: Any, found: Any) -> bool:
    """Whether a cast column has the same decimals, at any depth."""
    kind = column.type
    if types.is_decimal(kind):
        return kind == found.type or _is_same(column, found)
    if not _holds_decimals(kind):
        return True
    pairs = zip(_parts(column), _parts(found), strict=True)
    return all(keeps_decimals(one, other) for one, other in pairs)


def _is_same(column: pa.Array, found: pa.Array) -> bool:
    try:
        return bool(found.cast(column.type).equals(column))
    except pa.ArrowInvalid:
        return False


def _holds_decimals(kind: Any) -> bool:
    return types.is_decimal(kind) or (
        types.is_nested(kind)
        and any(_holds_decimals(kind.field(number).type) for number in range(kind.num_fields))
    )


def _parts(column: Any) -> list[Any]:
    """What is inside of a struct, list or map that is not null."""
    if types.is_map(column.type):
        return list(beneath(column))
    inside = column.flatten()
    return inside if types.is_struct(column.type) else [inside]
