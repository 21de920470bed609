"""Headers, properties and settings by key, and the camelCase spelling of all names.

Compiled with `key_value.pxd` where there is a compiler, so that its classes are C's.
"""

from __future__ import annotations

import os
from typing import Any, Self, TypeVar

from kmq_spark.errors import InvalidRequestError

Value = int | float | str
V = TypeVar("V", int, float, str)
T = TypeVar("T")
_LONG = 2**63


def in_camel_case(name: str) -> str:
    """Return a name in camelCase: `attach_queue` becomes `attachQueue`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class BothSpellings:
    """Gives the methods of a subclass their names in camelCase as well."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            if not name.startswith("_"):
                setattr(cls, in_camel_case(name), member)


class KeyValue:
    """Values by key, which keep their types; a missing key reads as 0 or None."""

    __slots__ = ("values",)

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self.values: dict[str, Any] = {} if values is None else values

    def __eq__(self, other: object) -> bool:
        return type(other) is KeyValue and self.values == other.values

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"KeyValue({self.values})"

    def __reduce__(self) -> tuple[Any, ...]:
        # What is compiled is pickled in another way else, which the source can't read.
        return type(self), (self.values,), getattr(self, "__dict__", None)

    def put(self, key: str, value: Value | os.PathLike[str]) -> Self:
        """Set one value; returns this KeyValue.

        InvalidRequestError unless the key is non-empty text, and the value a 64-bit int, a float or
        non-empty text.
        """
        set_checked(self.values, key, os.fspath(value) if isinstance(value, os.PathLike) else value)
        return self

    def get_int(self, key: str) -> int:
        """Return the whole number of this key; 0 when there is none."""
        return self._get(key, int, 0)

    get_long = get_int
    getInt = getLong = get_int  # noqa: N815

    def get_double(self, key: str) -> float:
        """Return the number of this key; 0.0 when there is none."""
        return self._get(key, float, 0.0)

    getDouble = get_double  # noqa: N815

    def get_string(self, key: str) -> str | None:
        """Return the text of this key, a number as text; None when there is none."""
        return self._get(key, str, None)

    getString = get_string  # noqa: N815

    def _get(self, key: str, kind: type[V], default: T) -> V | T:
        value = self.values.get(key)
        try:
            return value if type(value) is kind else default if value is None else kind(value)
        except (ValueError, OverflowError):
            what = f"{key} is {value!r}, which is no {kind.__name__}"
            raise InvalidRequestError(what, key=key) from None

    def key_set(self) -> set[str]:
        """Return all keys."""
        return set(self.values)

    def contains_key(self, key: str) -> bool:
        """Whether the key has a value."""
        return key in self.values

    keySet, containsKey = key_set, contains_key  # noqa: N815


def set_checked(values: dict[str, Any], key: Any, value: Any) -> None:
    """Set one checked value; InvalidRequestError names what is wrong."""
    if not (isinstance(key, str) and key and (key.isascii() or _has_utf8(key))):
        raise InvalidRequestError(f"a key must be non-empty text, not {key!r:.80}", key=key)
    kind = type(value)
    if not (
        (kind is str and value and (value.isascii() or _has_utf8(value)))
        or (kind is int and -_LONG <= value < _LONG)
        or kind is float
    ):
        what = f"a 64-bit int, a float or non-empty text, not {value!r:.80}"
        raise InvalidRequestError(f"the value of {key} must be {what}", key=key)
    values[key] = value


def _has_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
