"""Rules for the settings of topics and queues, and the function that checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kmq_storage import limits
from kmq_storage.errors import InvalidRequestError
from kmq_storage.names import is_word, nearest
from kmq_storage.numeric import seconds_of, whole


class Rule(NamedTuple):
    """The rule for the value of a setting."""

    #: The expected value, in words for the error.
    expectation: str
    #: Converts a value to the stored one; None for an invalid value.
    stored: Callable[[Any], Any]
    #: Whether None is a valid value.
    optional: bool = False


def whole_numbers(highest: int, *, optional: bool = False) -> Rule:
    """A rule for whole numbers from 1 on."""

    def stored(value: Any) -> int | None:
        count = whole(value)
        return count if count is not None and 1 <= count <= highest else None

    return Rule(f"a whole number from 1 to {highest}", stored, optional)


def durations(*, optional: bool = False) -> Rule:
    """A rule for seconds above 0 that can be added to any time."""

    def stored(value: Any) -> float | None:
        return _stored_seconds(value) or None

    return Rule("seconds above 0, 1,000 years at most", stored, optional)


def _stored_seconds(value: Any) -> float | None:
    """Seconds from 0 on that can be added to any time; None for another value."""
    seconds = seconds_of(value)
    if seconds is None or not 0 <= seconds <= limits.DURATION_MAX:
        return None
    return float(seconds)


def waits() -> Rule:
    """A rule for a sequence of seconds from 0 on."""

    def stored(value: Any) -> tuple[float | None, ...] | None:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            return None
        each = tuple(map(_stored_seconds, value))
        return None if None in each else each

    return Rule("a sequence of seconds, 1,000 years at most", stored)


def words(*choices: str, optional: bool = False) -> Rule:
    """A rule for one of these words."""
    *others, last = map(repr, choices)
    expectation = f"{', '.join(others)} or {last}"
    return Rule(expectation, lambda value: value if is_word(value, choices) else None, optional)


def checked(kind: str, changes: Mapping[str, Any], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """The stored values of settings; InvalidRequestError for an invalid or unknown setting."""
    return {name: _checked(kind, name, value, rules) for name, value in changes.items()}


def differences(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """The settings that something has and that differ from those asked for, in words."""
    different = (name for name in kept if kept[name] != asked[name])
    return [f"{name}={kept[name]} (asked: {asked[name]})" for name in different]


def _checked(kind: str, name: str, value: Any, rules: Mapping[str, Rule]) -> Any:
    rule = rules.get(name)
    if rule is None:
        raise InvalidRequestError(
            f"{kind} setting {name!r} is unknown{nearest(name, rules)}", setting=name
        )
    if value is None and rule.optional:
        return None
    stored = rule.stored(value)
    if stored is None:
        what = f"{rule.expectation}, or None" if rule.optional else rule.expectation
        raise InvalidRequestError(
            f"{kind} setting {name} must be {what}, not {value!r}", setting=name, value=value
        )
    return stored
