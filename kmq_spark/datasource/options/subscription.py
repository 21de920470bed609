"""Which topics and partitions a read covers: `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from kmq_spark.datasource.options import values
from kmq_spark.datasource.refusal import refuse
from kmq_storage.errors import InvalidRequestError

_WAYS = ("subscribe", "subscribePattern", "assign")
_ASSIGN_EXAMPLE = 'JSON such as {"orders":[0,1],"returns":[0]}'


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """Topics by name or by pattern, and which of their partitions are read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    #: By topic, the partitions that are read (`assign`).
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: The partitions that are read of every topic (`partitions`); None for all.
    numbers: tuple[range, ...] | None = None

    @property
    def option(self) -> str:
        """The option that chose the topics."""
        if self.pattern is not None:
            return "subscribePattern"
        return "assign" if self.partitions else "subscribe"

    def matches(self, names: Iterable[str]) -> list[str]:
        """The covered ones of these topic names, sorted."""
        if self.pattern is not None:
            # Found anywhere in the name unless anchored, as Spark's Kafka source does.
            return sorted(filter(re.compile(self.pattern).search, names))
        return sorted(set(self.topics).intersection(names))

    def partitions_of(self, topic: str, count: int) -> list[int]:
        """The covered partitions of a topic that has `count` of them; later ones may appear."""
        chosen = self.partitions.get(topic)
        inside = range(count) if chosen is None else [p for p in chosen if p < count]
        if self.numbers is None:
            return list(inside)
        below = (range(each.start, min(each.stop, count)) for each in self.numbers)
        wanted = set(chain.from_iterable(below))
        return [p for p in inside if p in wanted]


def parse_subscription(given: Mapping[str, str]) -> Subscription:
    """Return the one way that was chosen; InvalidRequestError for none and for several."""
    ways = [way for way in _WAYS if way.lower() in given]
    if len(ways) != 1:
        found = f"given were {' and '.join(ways)}" if ways else "none was given"
        raise InvalidRequestError(
            f"a read needs exactly one of the options {', '.join(_WAYS)}; {found}",
            option=ways[0] if ways else _WAYS[0],
        )
    text, numbers = given[ways[0].lower()], values.ranges(given, "partitions")
    if ways[0] == "subscribe":
        return Subscription(topics=_topics(text), numbers=numbers)
    if ways[0] == "subscribePattern":
        return Subscription(pattern=_pattern(text), numbers=numbers)
    partitions = _assignment(text)
    return Subscription(topics=tuple(partitions), partitions=partitions, numbers=numbers)


def _topics(text: str) -> tuple[str, ...]:
    names = {name.strip() for name in text.split(",")} - {""}
    if not names:
        refuse("subscribe", text, "topic names with commas between them")
    return tuple(sorted(values.checked_name("subscribe", "topic", name) for name in names))


def _pattern(given: str) -> str:
    text = given.strip()  # as Spark's Kafka source does: no name has blanks
    if not text:
        refuse("subscribePattern", given, "a regular expression on topic names")
    try:
        with warnings.catch_warnings():
            # Java has sets in sets, `[a-z&&[^x]]`: in Python they would match something else.
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except (re.error, OverflowError, RecursionError, FutureWarning) as problem:
        refuse("subscribePattern", text, f"a regular expression ({problem})")
    return text


def _assignment(text: str) -> dict[str, tuple[int, ...]]:
    parsed = values.json_object("assign", text, _ASSIGN_EXAMPLE)
    if not parsed or not all(map(_is_assigned, parsed.values())):
        refuse("assign", text, _ASSIGN_EXAMPLE)
    return {
        values.checked_name("assign", "topic", name): tuple(sorted(set(parsed[name])))
        for name in sorted(parsed)
    }


def _is_assigned(numbers: object) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
