"""Stored columns as the types that a reader asked for."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pyarrow as pa
from pyarrow import types

from kmq_spark.errors import InvalidRequestError


def fitted(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column in a field's type; InvalidRequestError for a value that this type can't hold."""
    if column.type == field.type:
        return column
    try:
        # Most often only the name of a list's item differs between Spark and the store.
        found = column.cast(field.type)
    except pa.ArrowInvalid as error:
        _refuse(field, str(error), error)
    if is_rounded(column, found):
        _refuse(field, "it would be rounded")
    return found


def is_rounded(column: pa.Array, found: pa.Array) -> bool:
    """Whether a cast to a narrower float changed a value; Arrow refuses other such casts itself."""
    before, after = column.type, found.type
    if not (types.is_floating(before) and types.is_floating(after)):
        return False
    if before.bit_width <= after.bit_width:
        return False
    wide, narrow = (each.to_numpy(zero_copy_only=False) for each in (column, found))
    return not np.array_equal(wide, narrow, equal_nan=True)


def _refuse(field: pa.Field, why: str, cause: Exception | None = None) -> NoReturn:
    raise InvalidRequestError(
        f"column {field.name!r} holds a value that Spark's {field.type} can't: {why}; "
        "if the topic got a wider type since, load it again (a stream: start it again)",
        column=field.name,
    ) from cause
