"""Stored columns as the types that a reader asked for."""

from __future__ import annotations

import pyarrow as pa

from kmq_spark.errors import InvalidRequestError


def fitted(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column in a field's type; InvalidRequestError for a value that this type can't hold."""
    if column.type == field.type:
        return column
    try:
        # Most often only the name of a list's item differs between Spark and the store.
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(
            f"column {field.name!r} holds a value that Spark's {field.type} can't: {error}; "
            "if the topic got a wider type since, load it again (a stream: start it again)",
            column=field.name,
        ) from error
