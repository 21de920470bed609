"""Arguments of calls, checked: durations, offsets, partitions, counts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta
from inspect import iscoroutinefunction
from threading import TIMEOUT_MAX
from typing import Any

import numpy as np

from kmq_spark.errors import InvalidRequestError
from kmq_storage import limits
from kmq_storage.names import is_word
from kmq_storage.numeric import seconds_of, whole

#: What an acknowledgement can mean.
DURABILITIES = ("fsync", "os")
#: The largest float: an int above it is no number of seconds, either.
_MOST = sys.float_info.max


def check_plain(what: str, function: object) -> None:
    """InvalidRequestError for an `async def`, which would be called and never run."""
    if iscoroutinefunction(function):
        raise InvalidRequestError(
            f"{what} must be a plain function: nobody would await {function!r}; "
            "handles of kmq_spark.aio do",
            option=what,
        )


def checked_seconds(what: str, value: object, *, above: float = -1e-9) -> float:
    """A duration in seconds from a number or timedelta above a bound; nan and inf are refused."""
    seconds = seconds_of(value)
    if seconds is not None and above < seconds <= _MOST:
        return float(seconds)
    bound = "" if above < -1 else f" above {above:g}" if above >= 0 else " from 0 on"
    raise InvalidRequestError(
        f"{what} must be seconds or a timedelta{bound}, not {value!r}", option=what
    )


def checked_stored_seconds(what: str, value: object, *, above: float = -1e-9) -> float:
    """A duration that is added to an instant and stored: 1,000 years at most."""
    seconds = checked_seconds(what, value, above=above)
    if seconds > limits.DURATION_MAX:
        raise InvalidRequestError(f"{what} must be 1,000 years at most, not {value!r}", option=what)
    return seconds


def checked_milliseconds(what: str, value: object) -> float:
    """A duration in seconds from a number of milliseconds."""
    number = None if isinstance(value, timedelta | np.timedelta64) else seconds_of(value)
    if number is not None and 0 <= number <= _MOST:
        return number / 1000
    raise InvalidRequestError(f"{what} must be milliseconds from 0 on, not {value!r}", option=what)


def checked_timeout(value: object) -> float | None:
    """Return the seconds to wait, at most what threads can wait; None waits for ever."""
    return None if value is None else min(checked_seconds("timeout", value), TIMEOUT_MAX)


def seconds_to_wait(timeout: object) -> float:
    """Return the same as a number: some centuries for None."""
    seconds = checked_timeout(timeout)
    return TIMEOUT_MAX if seconds is None else seconds


def checked_count(what: str, value: object, *, lowest: int = 1) -> int:
    """Return a whole number from `lowest` on."""
    count = whole(value)
    if count is not None and count >= lowest:
        return count
    raise InvalidRequestError(f"{what} must be a whole number from {lowest}, not {value!r}")


def checked_flag(option: str, value: object) -> bool:
    """Return True or False; anything else is refused, the text "false" above all."""
    if isinstance(value, bool):
        return value
    raise InvalidRequestError(f"{option} must be True or False, not {value!r}", option=option)


def checked_offset(value: object) -> int:
    """Return an offset; whether it lies in the log is checked later."""
    return _checked_whole("offset", value)


def checked_offsets(value: Any) -> dict[str, dict[int, int]]:
    """Offsets as `{topic: {partition: offset}}`."""
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        raise InvalidRequestError(f"offsets must be {{topic: {{partition: n}}}}, not {value!r}")
    return {
        topic: {checked_partition(n): checked_offset(offset) for n, offset in numbers.items()}
        for topic, numbers in value.items()
    }


def checked_partition(value: object) -> int:
    """Return a partition's number; whether the partition exists is checked later."""
    return _checked_whole("partition", value)


def _checked_whole(what: str, value: object) -> int:
    number = whole(value)
    if number is not None:
        return number
    raise InvalidRequestError(f"{what} must be a whole number, not {value!r}")


def checked_partitions(value: Any) -> dict[str, list[int]]:
    """Partitions as `{topic: [partition, ...]}`."""
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"partitions must be {{topic: [n, ...]}}, not {value!r}")
    return {topic: checked_numbers(numbers) for topic, numbers in value.items()}


def checked_numbers(value: Any) -> list[int]:
    """Return partition numbers of one topic."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidRequestError(f"partitions must be a list of whole numbers, not {value!r}")
    return [checked_partition(number) for number in value]


def checked_names(topics: object) -> list[str]:
    """Return the names of topics, or of one topic; whether they exist is checked later."""
    if not isinstance(topics, Iterable) or isinstance(topics, Mapping):  # as `assign` takes one
        raise InvalidRequestError(f"topics must be names, not {topics!r}", option="topics")
    return [topics] if isinstance(topics, str) else list(topics)


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """InvalidRequestError unless the value of an option is one of the choices."""
    if not is_word(value, choices):
        raise InvalidRequestError(
            f"{option} must be one of {', '.join(choices)}, not {value!r}", option=option
        )
