"""How the schema of a typed topic may change: nullable columns are added, numbers get wider.

Every batch that was written with an earlier version of the schema must be readable, without loss,
with the newest one. So all other changes are refused: no column may be removed, moved, or get
another kind of type.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from kmq_storage.errors import InvalidRequestError


def check_evolution(topic: str, old: pa.Schema, new: pa.Schema) -> None:
    """Raise InvalidRequestError with the column and the reason unless `old` may become `new`."""
    for name in old.names:
        if name not in new.names:
            raise _refused(topic, name, "is missing; columns can't be dropped or renamed")
    kept = [name for name in new.names if name in old.names]
    if kept != old.names:
        moved = next(n for n, before in zip(kept, old.names, strict=True) if n != before)
        raise _refused(topic, moved, "moved; columns keep their order, new ones may come between")
    for field in new:
        why = _why_not_added(field) if field.name not in kept else _why_not(old, field)
        if why is not None:
            raise _refused(topic, field.name, why)


def _refused(topic: str, column: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"schema of topic {topic} can't change like this: column {column!r} {why}",
        topic=topic,
        column=column,
    )


def _why_not_added(field: pa.Field) -> str | None:
    if field.nullable:
        return None
    return "is new and not nullable; records that are there have no value for it"


def _why_not(old: pa.Schema, field: pa.Field) -> str | None:
    before: pa.Field = old.field(field.name)
    if before.nullable != field.nullable:
        return f"can't become {'nullable' if field.nullable else 'not nullable'}"
    if is_same(before.type, field.type) or is_wider(before.type, field.type):
        return None
    return (
        f"can't go from {before.type} to {field.type}; "
        "only integers and floats get wider, each within its kind"
    )


def is_same(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether types are equal, including the names of the fields inside lists and maps."""
    return bool(old == new) and str(old) == str(new)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether `new` is a wider integer or float type that has every value of `old`."""
    if types.is_floating(old) and types.is_floating(new):
        return bool(old.bit_width < new.bit_width)
    if not (types.is_integer(old) and types.is_integer(new)):
        return False
    if types.is_signed_integer(old) and types.is_unsigned_integer(new):
        return False
    return bool(old.bit_width < new.bit_width)
