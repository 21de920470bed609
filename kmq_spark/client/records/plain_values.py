"""Arrow columns as Python values, exactly: a value that Python can't hold comes as a number.

Those are instants and days outside the years 1 to 9999, and what has nanoseconds: these come as
pandas has them where it is installed. No value is rounded, and none makes a record unreadable.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types


def plain_values(column: pa.Array) -> list[Any]:
    """The values of a column; maps are lists of pairs, as Arrow has them."""
    if not _rounds(column.type):
        try:
            values: list[Any] = column.to_pylist()
        except (ValueError, OverflowError):
            pass
        else:
            return values
    return [_plain(scalar) for scalar in column]


def _rounds(kind: Any) -> bool:
    """Whether Arrow silently drops nanoseconds of this type."""
    if types.is_nested(kind):
        return any(_rounds(kind.field(number).type) for number in range(kind.num_fields))
    return bool(types.is_time64(kind) and kind.unit == "ns")


def _plain(scalar: Any) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if types.is_struct(kind):
        return {name: _plain(scalar[name]) for name in scalar}
    if types.is_map(kind):
        pairs = scalar.values
        both = zip(pairs.field(0), pairs.field(1), strict=True)
        return [(_plain(key), _plain(item)) for key, item in both]
    if types.is_nested(kind):
        return [_plain(item) for item in scalar.values]
    if _rounds(kind) and scalar.value % 1000:
        return scalar.value
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value
