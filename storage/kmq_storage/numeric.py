"""Numbers that users hand in: Python's own, and those of numpy and Arrow."""

from __future__ import annotations

from datetime import timedelta
from numbers import Real
from operator import index
from typing import Any


def whole(value: Any) -> int | None:
    """A whole number, also one of numpy's, as int; None for what is none, as True."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def seconds_of(value: Any) -> float | None:
    """Seconds of a number or a timedelta, which may be any, nan too; None for what is neither."""
    if isinstance(value, float):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    number = whole(value)
    is_other = number is None and isinstance(value, Real) and not isinstance(value, bool)
    return float(value) if is_other else number
