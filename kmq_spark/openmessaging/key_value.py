"""Headers, properties and settings by key; and the second spelling of all names, in camelCase."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from kmq_spark.errors import InvalidRequestError

Value = int | float | str
V = TypeVar("V", int, float, str)
T = TypeVar("T")
_LONG = 2**63


def in_camel_case(name: str) -> str:
    """`attach_queue` as `attachQueue`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class BothSpellings:
    """What gives the methods of a subclass their names in camelCase, too."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            if not name.startswith("_"):
                setattr(cls, in_camel_case(name), member)


@dataclass(slots=True)
class KeyValue(BothSpellings):
    """Values by key, each of which comes back with its type; what is not there is 0 or None."""

    values: dict[str, Any] = field(default_factory=dict)

    def put(self, key: str, value: Value | os.PathLike[str]) -> Self:
        """Set or replace one value.

        InvalidRequestError unless the key is non-empty text and the value a 64-bit int, a float
        or non-empty text.
        """
        put(self.values, key, os.fspath(value) if isinstance(value, os.PathLike) else value)
        return self

    def get_int(self, key: str) -> int:
        """The whole number of this key; 0 when there is none."""
        return self._get(key, int, 0)

    get_long = get_int

    def get_double(self, key: str) -> float:
        """The number of this key; 0.0 when there is none."""
        return self._get(key, float, 0.0)

    def get_string(self, key: str) -> str | None:
        """The text of this key, also of a number; None when there is none."""
        return self._get(key, str, None)

    def _get(self, key: str, kind: type[V], default: T) -> V | T:
        value = self.values.get(key)
        if type(value) is kind:
            return value
        try:
            return default if value is None else kind(value)
        except (ValueError, OverflowError):
            what = f"{key} is {value!r}, which is no {kind.__name__}"
            raise InvalidRequestError(what, key=key) from None

    def key_set(self) -> set[str]:
        """All keys."""
        return set(self.values)

    def contains_key(self, key: str) -> bool:
        """Whether there is a value of this key."""
        return key in self.values


def put(values: dict[str, Any], key: Any, value: Any) -> None:
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
