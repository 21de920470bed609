"""Headers, properties and settings: int, float and text under names that are text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging.spelling import also_in_camel_case

Value = int | float | str
_LONG = 2**63


@also_in_camel_case
class KeyValue:
    """Values by key, each of which comes back with its type; what is not there is 0 or None."""

    __slots__ = ("values",)

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self.values: dict[str, Any] = {} if values is None else values

    def put(self, key: str, value: Value | os.PathLike[str]) -> Self:
        """Set or replace one value.

        InvalidRequestError unless the key is non-empty text and the value a 64-bit int, a float
        or non-empty text.
        """
        put(self.values, key, os.fspath(value) if isinstance(value, os.PathLike) else value)
        return self

    def get_int(self, key: str) -> int:
        """The whole number of this key; 0 when there is none."""
        return int(self._get(key, int, 0))

    get_long = get_int

    def get_double(self, key: str) -> float:
        """The number of this key; 0.0 when there is none."""
        return float(self._get(key, float, 0.0))

    def get_string(self, key: str) -> str | None:
        """The text of this key, also of a number; None when there is none."""
        value: str | None = self._get(key, str, None)
        return value

    def _get(self, key: str, kind: type, default: Any) -> Any:
        value = self.values.get(key)
        if type(value) is kind:
            return value
        try:
            return default if value is None else kind(value)
        except (ValueError, OverflowError):
            raise InvalidRequestError(
                f"{key} is {value!r}, which is no {kind.__name__}", key=key
            ) from None

    def key_set(self) -> set[str]:
        """All keys."""
        return set(self.values)

    def contains_key(self, key: str) -> bool:
        """Whether there is a value of this key."""
        return key in self.values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyValue) and self.values == other.values

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"KeyValue({self.values})"


def put(values: dict[str, Any], key: str, value: Value) -> None:
    """Set one checked value; InvalidRequestError names what is wrong."""
    if not isinstance(key, str) or not _is_text(key):
        raise InvalidRequestError(f"a key must be non-empty text, not {key!r:.80}", key=key)
    kind = type(value)
    good = (
        (kind is int and -_LONG <= value < _LONG)  # type: ignore[operator]
        or kind is float
        or (kind is str and _is_text(value))  # type: ignore[arg-type]
    )
    if not good:
        raise InvalidRequestError(
            f"the value of {key} must be a 64-bit int, a float or non-empty text, "
            f"not {value!r:.80}",
            key=key,
        )
    values[key] = value


def _is_text(text: str) -> bool:
    """Whether it is text, some of it, that has a UTF-8."""
    is_plain = text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)
    return is_plain and text != ""


def setting(settings: KeyValue | Mapping[str, Any], key: str) -> str:
    """A setting that has to be there."""
    values = settings.values if isinstance(settings, KeyValue) else settings
    if not isinstance(values, Mapping) or not values.get(key):
        raise InvalidRequestError(
            f'{key} is missing: hand in KeyValue().put("{key}", ...)', setting=key
        )
    return os.fspath(values[key])
