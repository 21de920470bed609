"""Where a read begins and ends: by word, by offset or by time.

The forms are those of Spark's Kafka source. In addition, a topic may give a point for all
partitions that it doesn't name: `{"orders": {"0": 23, "*": -2}}`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from kmq_spark.datasource.offsets import OWN_KEY
from kmq_spark.datasource.options.instants import INSTANT_FORMS, Instant, parse_instant
from kmq_spark.datasource.options.values import LARGEST, Given, json_object
from kmq_spark.datasource.refusal import refuse
from kmq_storage.errors import InvalidRequestError

EARLIEST, LATEST, GROUP = "earliest", "latest", "group"

#: Kafka's numbers for the two ends of a partition.
OFFSET_EARLIEST, OFFSET_LATEST = -2, -1

#: A point in one partition.
Point: TypeAlias = int | Instant

_REST = "*"
_PARTITION = re.compile(r"[0-9]{1,10}\Z")
_OFFSETS = 'JSON such as {"orders":{"0":23,"1":-1,"*":-2}} (-2 is earliest, -1 latest, * the rest)'
#: An end is never earliest.
_ENDS = 'JSON such as {"orders":{"0":23,"*":-1}} (-1 is latest, * the rest)'
_TIMES = (
    'JSON such as {"orders":{"0":1700000000000,"1":"2024-05-06T07:08:09Z","*":"-10m"}} '
    f"({INSTANT_FORMS}; * the rest)"
)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Where a read begins or ends: one point for all partitions, or a point for each."""

    #: The option that gives it.
    option: str
    word: str | None = None
    instant: Instant | None = None
    named: Mapping[str, Mapping[int, Point]] = field(default_factory=dict)
    #: By topic: the point of the partitions that are not named.
    rest: Mapping[str, Point] = field(default_factory=dict)
    #: By name, the ids of the topics that the offsets are of, if given, as in a query's progress.
    ids: Mapping[str, uuid.UUID] = field(default_factory=dict)

    @property
    def by_time(self) -> bool:
        """Whether the records must be looked at to know its offsets."""
        points = [*self.rest.values(), *chain(*(each.values() for each in self.named.values()))]
        return self.instant is not None or any(isinstance(point, Instant) for point in points)

    @property
    def forms(self) -> str:
        """The forms of a point in this option, other than an offset, for errors."""
        if self.option.endswith("ByTimestamp"):
            return f"a time is {INSTANT_FORMS}"
        return "-1 is latest" if self.option == "endingOffsets" else "-1 is latest, -2 earliest"


def parse_starting(given: Given) -> Bound | None:
    """Return where a read begins: the option that comes first in Kafka's precedence."""
    return _parse_first("starting", given, (EARLIEST, LATEST, GROUP))


def parse_ending(given: Given) -> Bound | None:
    """Return where a read ends, as `parse_starting` does."""
    return _parse_first("ending", given, (LATEST,))


def check_fit(starting: Bound | None, ending: Bound | None) -> None:
    """InvalidRequestError for two bounds that can't fit, whatever the store holds."""
    if starting is None or ending is None:
        return
    for topic in sorted(starting.named.keys() & ending.named.keys()):
        starts, ends = starting.named[topic], ending.named[topic]
        all_named = topic not in starting.rest and topic not in ending.rest
        if all_named and starts.keys() != ends.keys():
            raise InvalidRequestError(
                f"options {starting.option!r} and {ending.option!r} name different partitions of "
                f"{topic}: {sorted(starts)} and {sorted(ends)}; name every one that is read",
                option=ending.option,
                topic=topic,
            )
        for partition in sorted(starts.keys() & ends.keys()):
            start, end = starts[partition], ends[partition]
            if isinstance(start, int) and isinstance(end, int) and 0 <= end < start:
                raise beyond(starting, ending, (topic, partition), (start, end))


def beyond(
    starting: Bound, ending: Bound, where: tuple[str, int], offsets: tuple[int, int]
) -> InvalidRequestError:
    """Return the error for a partition whose start is behind its end."""
    (topic, partition), (start, end) = where, offsets
    by_time = any("Timestamp" in bound.option for bound in (starting, ending))
    what = " (the offsets that the times stand for)" if by_time else ""
    return InvalidRequestError(
        f"{topic}-{partition}: {starting.option} {start} is beyond {ending.option} {end}{what}",
        option=starting.option,
        topic=topic,
        partition=partition,
        start=start,
        end=end,
    )


def _parse_first(side: str, given: Given, words: tuple[str, ...]) -> Bound | None:
    for option, parse in (
        (f"{side}Timestamp", _parse_timestamp),
        (f"{side}OffsetsByTimestamp", _parse_times),
        (f"{side}Offsets", lambda option, text: _parse_offsets(option, text, words)),
    ):
        text = given.get(option.lower())
        if text is not None:
            return parse(option, text)
    return None


def _parse_timestamp(option: str, text: str) -> Bound:
    instant = parse_instant(text)
    if instant is None:
        refuse(option, text, INSTANT_FORMS)
    return Bound(option=option, instant=instant)


def _parse_times(option: str, text: str) -> Bound:
    return _parse_points(option, text, _TIMES, lambda _, value: parse_instant(value))


def _parse_offsets(option: str, text: str, words: tuple[str, ...]) -> Bound:
    word = text.strip().lower()
    if word in words:
        return Bound(option=option, word=word)
    lowest, example = (OFFSET_EARLIEST, _OFFSETS) if EARLIEST in words else (OFFSET_LATEST, _ENDS)
    if not word.startswith("{"):
        refuse(option, text, f"{', '.join(map(repr, words))} or {example}")

    def offset(where: str, value: object) -> int | None:
        if type(value) is int and not lowest <= value <= LARGEST:
            what = "earliest" if value == OFFSET_EARLIEST else str(value)
            refuse(option, text, f"no {what} for {where}; use {example}")
        return value if type(value) is int else None

    return _parse_points(option, text, example, offset)


def _parse_points(
    option: str, text: str, example: str, point_of: Callable[[str, Any], Point | None]
) -> Bound:
    parsed = json_object(option, text, example)
    own = parsed.pop(OWN_KEY, None)  # an offset copied from a query's progress is welcome
    named: dict[str, dict[int, Point]] = {}
    rest: dict[str, Point] = {}
    for topic, points in parsed.items():
        if not isinstance(points, dict):
            refuse(option, text, example)
        named[topic] = {}
        for number, value in points.items():
            point = point_of(f"{topic}[{number}]", value)
            if point is None or not (number == _REST or _PARTITION.match(number)):
                refuse(option, text, example)
            if number == _REST:
                rest[topic] = point
            elif int(number) in named[topic]:
                refuse(option, text, f"each partition once, not {topic}[{int(number)}] twice")
            else:
                named[topic][int(number)] = point
    return Bound(option=option, named=named, rest=rest, ids=_ids(option, text, example, own))


def _ids(option: str, text: str, example: str, own: Any) -> dict[str, uuid.UUID]:
    """Return the topic ids from the entry that a query's progress has; none without the entry."""
    try:
        return {} if own is None else {t: uuid.UUID(each) for t, each in own.get("ids", {}).items()}
    except (ValueError, AttributeError, TypeError):
        refuse(option, text, f"{OWN_KEY!r} as a query's progress has it, or without it: {example}")
