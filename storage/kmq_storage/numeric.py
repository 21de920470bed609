"""Numbers from users: Python's own, and those of numpy and Arrow."""

from __future__ import annotations

from datetime import timedelta
from numbers import Real
from operator import index
from typing import Any

import numpy as np


def whole(value: Any) -> int | None:
    """A whole number, also one of numpy, as int; None for other values, also for True and False."""
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_):  # an older numpy takes its own for a number
        return None
    try:
        return index(value)
    except TypeError:
        return None


def seconds_of(value: Any) -> float | None:
    """The seconds of a number or a timedelta, unchecked: also nan; None for other values."""
    if isinstance(value, float):
        return value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, np.timedelta64):  # for Python a number, of whatever unit
        return _in_seconds(value)
    number = whole(value)
    is_other = number is None and isinstance(value, Real) and not isinstance(value, bool)
    return float(value) if is_other else number


def _in_seconds(value: np.timedelta64) -> float | None:
    try:
        return float(value / np.timedelta64(1, "s"))
    except TypeError:  # months and years have no length
        return None
