"""Single Python values for single columns: which Python type fits which Arrow type, exactly."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from kmq_spark.client.records.values import is_naive

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MisfitError(Exception):
    """A value that its column doesn't take, with the reason."""


def scalar_converter(kind: pa.DataType) -> Convert:
    """Return what checks and converts a value for a type that is not nested."""
    for fits, make in _MAKERS:
        if fits(kind):
            return make(kind)
    raise AssertionError(f"no topic has columns of type {kind}")


def _no_value(kind: pa.DataType) -> Convert:
    def converted(value: Any) -> None:
        raise MisfitError(f"{value!r:.80} is not None")

    return converted


def _bool(kind: pa.DataType) -> Convert:
    def converted(value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            raise MisfitError(f"{value!r:.80} is no bool")
        return bool(value)

    return converted


def _is_whole(value: Any) -> bool:
    # A duration of numpy is one of its integers.
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def _int(kind: pa.DataType) -> Convert:
    bits = kind.bit_width
    low = -(2 ** (bits - 1)) if types.is_signed_integer(kind) else 0
    high = low + 2**bits - 1

    def converted(value: Any) -> int:
        if not _is_whole(value):
            raise MisfitError(f"{value!r:.80} is no int")
        if not low <= value <= high:
            raise MisfitError(f"{value} is outside {low} to {high}")
        return int(value)

    return converted


def _float(kind: pa.DataType) -> Convert:
    largest = {16: 65504.0, 32: float(np.finfo(np.float32).max), 64: math.inf}[kind.bit_width]

    def converted(value: Any) -> float:
        if not isinstance(value, float | np.floating) and not _is_whole(value):
            raise MisfitError(f"{value!r:.80} is no float")
        try:
            number = float(value)
        except OverflowError:
            raise MisfitError("the int is too large for a float") from None
        if math.isfinite(number) and abs(number) > largest:
            raise MisfitError(f"{number} is too large")
        if _is_whole(value) and int(number) != value:
            raise MisfitError(f"{value} is no whole number that a float can hold")
        return number

    return converted


def _text(kind: pa.DataType) -> Convert:
    def converted(value: Any) -> str:
        if not isinstance(value, str):
            raise MisfitError(f"{value!r:.80} is no text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise MisfitError(f"it is no valid text: {error}") from None
        return value

    return converted


def _bytes(kind: pa.DataType) -> Convert:
    length = kind.byte_width if types.is_fixed_size_binary(kind) else None

    def converted(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise MisfitError(f"{value!r:.80} is no bytes")
        if length is not None and len(value) != length:
            raise MisfitError(f"{len(value)} bytes are not {length}")
        return bytes(value)

    return converted


def _exactly(
    kind: pa.DataType,
    is_right: Callable[[Any], bool],
    what: str,
    same: Callable[[Any, Any], bool] = operator.eq,
) -> Convert:
    """Return a converter that takes what Arrow gives back the same: nothing is rounded or moved."""

    def converted(value: Any) -> Any:
        if not is_right(value):
            raise MisfitError(f"{value!r:.80} is no {what}")
        try:
            back = pa.scalar(value, kind).as_py()
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise MisfitError(f"{value!r:.80} does not fit ({error})") from None
        if not same(back, value):
            raise MisfitError(f"{value!r:.80} would become {back!r:.80}")
        return value

    return converted


def _decimal(kind: pa.DataType) -> Convert:
    def is_right(value: Any) -> bool:
        return isinstance(value, Decimal) or _is_whole(value)

    return _exactly(kind, is_right, "Decimal")


def _date(kind: pa.DataType) -> Convert:
    def is_right(value: Any) -> bool:
        return isinstance(value, date) and not isinstance(value, datetime)

    return _exactly(kind, is_right, "date")


def _time(kind: pa.DataType) -> Convert:
    def is_right(value: Any) -> bool:
        return isinstance(value, time) and value.tzinfo is None

    return _exactly(kind, is_right, "time without a zone")


def _timestamp(kind: pa.DataType) -> Convert:
    zoned = kind.tz is not None

    def is_right(value: Any) -> bool:
        return isinstance(value, datetime) and is_naive(value) != zoned

    what = f"datetime with{'' if zoned else 'out'} a time zone"
    return _exactly(kind, is_right, what, _same_instant if zoned else operator.eq)


def _same_instant(one: datetime, other: datetime) -> bool:
    """Compare instants: between zones, `==` is False in an hour that a clock shows twice."""
    return one - _EPOCH == other - _EPOCH


def _duration(kind: pa.DataType) -> Convert:
    return _exactly(kind, lambda value: isinstance(value, timedelta), "timedelta")


def _interval(kind: pa.DataType) -> Convert:
    return _exactly(kind, lambda value: isinstance(value, pa.MonthDayNano), "MonthDayNano")


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type are bytes."""
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


#: The first that fits a type makes its converter.
_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Convert]], ...] = (
    (types.is_decimal, _decimal),  # before bytes: Arrow calls some decimals fixed-size binary
    (types.is_boolean, _bool),
    (types.is_integer, _int),
    (types.is_floating, _float),
    (is_text, _text),
    (is_bytes, _bytes),
    (types.is_date, _date),
    (types.is_time, _time),
    (types.is_timestamp, _timestamp),
    (types.is_duration, _duration),
    (types.is_interval, _interval),
    (types.is_null, _no_value),
)
