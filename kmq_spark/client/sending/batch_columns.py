"""The sequences that `Producer.send_batch` takes: one element per record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kmq_spark.client.records.values import to_bytes
from kmq_spark.errors import InvalidRequestError


def common_length(values: object, **others: object) -> int:
    """Return the number of values; InvalidRequestError unless each other sequence has as many."""
    count = _length("values", values)
    for name, column in others.items():
        if column is not None and _length(name, column) != count:
            raise InvalidRequestError(
                f"{name} has {_length(name, column)} elements, values has {count}", field=name
            )
    return count


def by_position(column: Any) -> Any:
    """The same with `column[row]` as the element of that row.

    A pandas Series would look up a label, and an Arrow array would give a scalar.
    """
    if hasattr(column, "to_pylist"):  # an Arrow array
        return column.to_pylist()
    return column if column is None or isinstance(column, list | tuple) else list(column)


#: Python has these as sequences, too: of characters, bytes or names.
_NO_COLUMNS = (str, bytes, bytearray, Mapping)


def _length(name: str, column: Any) -> int:
    many = hasattr(column, "__getitem__") and not isinstance(column, _NO_COLUMNS)
    if not many or len(getattr(column, "shape", (1,))) != 1:  # a table has columns, not rows
        raise InvalidRequestError(
            f"{name} must be a sequence with an element per record, not {type(column).__name__}",
            field=name,
        )
    return len(column)


def keys_in_bytes(keys: Sequence[bytes | str | None]) -> list[bytes | None]:
    """The keys as bytes, text in UTF-8; InvalidRequestError for other types."""
    return [key if type(key) is bytes or key is None else to_bytes("key", key) for key in keys]
