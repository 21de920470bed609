"""Nulls where a schema allows none: in columns, and in what is inside lists, maps and structs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from kmq_spark.client.records.beneath import beneath
from kmq_spark.errors import InvalidRequestError


def check_no_nulls(topic: str, column: pa.Array, field: pa.Field) -> None:
    """InvalidRequestError, naming the column, for a null that the field doesn't allow."""
    where = _forbidden(column, field, field.name)
    if where is not None:
        raise InvalidRequestError(
            f"column {field.name!r} for topic {topic} holds a null, but {where!r} is not nullable",
            topic=topic,
            column=field.name,
        )


def _forbidden(column: pa.Array, field: pa.Field, path: str) -> str | None:
    """The first field beneath this one that has a null against its declaration."""
    if not field.nullable and column.null_count:
        return path
    if not _has_strict_parts(field.type):
        return None
    for part, inside in _parts(column.drop_null() if column.null_count else column):
        found = _forbidden(inside, part, f"{path}.{part.name}")
        if found is not None:
            return found
    return None


def _has_strict_parts(kind: Any) -> bool:
    if not types.is_nested(kind):
        return False
    parts = [kind.field(number) for number in range(kind.num_fields)]
    return any(not part.nullable or _has_strict_parts(part.type) for part in parts)


def _parts(column: Any) -> list[tuple[pa.Field, pa.Array]]:
    """The values beneath a column without nulls, with their fields."""
    kind = column.type
    if types.is_struct(kind):
        return list(zip(kind, column.flatten(), strict=True))
    field = kind.item_field if types.is_map(kind) else kind.value_field
    return [(field, beneath(column)[-1])]  # keys are never null
