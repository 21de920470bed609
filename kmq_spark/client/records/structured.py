"""Values for typed topics as users hand them in, and as a producer holds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

#: What a value costs in memory besides its text and bytes, roughly.
_COLUMN_BYTES = 16


class TypedValue:
    """One value on its way: its columns, and the schema version that they were checked against."""

    __slots__ = ("checked", "columns", "size")

    def __init__(self, columns: Mapping[str, Any], checked: tuple[str, ...] = ()) -> None:
        self.columns = columns
        #: The versions of the schema that it was checked against; empty before.
        self.checked = checked
        self.size = _COLUMN_BYTES * (len(columns) + 1) + sum(
            len(value) for value in columns.values() if isinstance(value, str | bytes)
        )

    def __len__(self) -> int:
        """Return roughly the bytes that it holds in memory."""
        return self.size


def is_structured(value: object) -> bool:
    """Whether this is a value for a typed topic: a mapping or a dataclass's instance."""
    return isinstance(value, Mapping) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def members_of(value: Any) -> Mapping[Any, Any]:
    """The columns of a mapping, or the fields of a dataclass's instance, copied."""
    if isinstance(value, Mapping):
        return dict(value)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
