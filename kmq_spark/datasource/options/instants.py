"""Points in time as options give them: Kafka's milliseconds, ISO text, or relative to now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from kmq_spark.datasource.options.values import SECONDS
from kmq_storage.model import to_datetime, to_microseconds

INSTANT_FORMS = (
    "milliseconds since 1970 (not -1, which is 'latest' to Kafka), ISO text with a zone such as "
    "2024-05-06T07:08:09+02:00, or -10m, -2h30m (before now)"
)

#: A Kafka broker takes this time for the end of a partition. Here it would mean the start.
_KAFKAS_LATEST = -1

#: Timestamps of records are microseconds in a signed 64-bit integer.
_LAST = 2**63 - 1
_MILLISECONDS = re.compile(r"[+-]?[0-9]{1,19}\Z")
_RELATIVE = re.compile(r"-((?:[0-9]{1,9}[a-z]+)+)\Z")
_STEP = re.compile(r"([0-9]+)([a-z]+)")
#: The digits of a fraction of a second that `datetime` cuts off.
_FINER = re.compile(r"[.,][0-9]{6}([0-9]+)")


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time in UTC microseconds, or relative to the moment when a read is planned."""

    microseconds: int
    before_now: bool = False

    def at(self, now: int) -> int:
        """Return the point in UTC microseconds for this `now`."""
        return now - self.microseconds if self.before_now else self.microseconds


def parse_instant(value: object) -> Instant | None:
    """An instant from text or a number of JSON; None when it is none."""
    if type(value) is int:
        return _of_milliseconds(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _MILLISECONDS.match(text):
        return _of_milliseconds(int(text))
    return _relative(text.lower()) if text.startswith("-") else _of_iso(text)


def as_text(microseconds: int) -> str:
    """UTC microseconds as ISO text, or as a number where a calendar has no day for them."""
    try:
        return to_datetime(microseconds).isoformat()
    except OverflowError:
        return f"{microseconds} us since 1970"


def _of_milliseconds(number: int) -> Instant | None:
    if number == _KAFKAS_LATEST:
        return None
    return Instant(max(min(number * 1_000, _LAST), -_LAST))


def _relative(text: str) -> Instant | None:
    found = _RELATIVE.match(text)
    steps = _STEP.findall(found[1]) if found else []
    if not steps or not all(unit in SECONDS for _, unit in steps):
        return None
    return Instant(
        sum(round(int(number) * SECONDS[unit] * 1_000_000) for number, unit in steps),
        before_now=True,
    )


def _of_iso(text: str) -> Instant | None:
    try:
        when = datetime.fromisoformat(text.upper())  # a small z means UTC, too
    except ValueError:
        return None
    if when.tzinfo is None:
        return None
    # No record is between two microseconds, so the next one stands for an instant in between.
    finer = _FINER.search(text)
    return Instant(to_microseconds(when) + bool(finer and finer[1].strip("0")))
