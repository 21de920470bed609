"""What a consumer wants to read, and which partitions that is at the moment."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kmq_spark.client.handles.arguments import check_plain, checked_names, checked_partitions
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.group_entries import Interest
from kmq_storage.format.manifest import Key
from kmq_storage.log.state.store_state import StoreState

Partitions = Mapping[str, list[int]]
Listener = Callable[[dict[str, list[int]]], object]


class TopicPartition(NamedTuple):
    """One partition of one topic; the id tells a topic from a later one of the same name."""

    topic: str
    partition: int
    topic_id: bytes

    @property
    def key(self) -> Key:
        """What a group's plan calls it."""
        return (self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics by name or pattern, or chosen partitions; and the callbacks for changes."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None
    on_assign: Listener | None = None
    on_revoke: Listener | None = None
    on_lost: Listener | None = None

    def __post_init__(self) -> None:
        for listener in (self.on_assign, self.on_revoke, self.on_lost):
            if listener is not None and not callable(listener):
                raise InvalidRequestError(f"callbacks must be callable, not {listener!r}")
            check_plain("a callback", listener)

    def resolve(
        self, state: StoreState, among: Collection[Key] | None = None
    ) -> list[TopicPartition]:
        """Return the partitions that are wanted and exist; only those among some, if given."""
        found = []
        for name in self._names(state):
            topic = state.find_topic(name)
            if topic is None:
                continue
            numbers: Iterable[int] = (
                range(topic.partitions) if self.assigned is None else self.assigned[name]
            )
            if among is not None:
                numbers = [number for number in numbers if (topic.id, number) in among]
            found += [TopicPartition(name, number, topic.id) for number in numbers]
        return found

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wanted, now or later."""
        chosen = self.assigned is not None and any(self.assigned.values())
        return not self.topics and self.pattern is None and not chosen

    @property
    def interest(self) -> Interest:
        """The same, as the other members of a group see it."""
        pattern = self.pattern.pattern if self.pattern else None
        return Interest(self.topics, pattern, self.assigned)

    def _names(self, state: StoreState) -> Iterable[str]:
        if self.assigned is not None:
            return self.assigned
        if self.pattern is not None:
            return sorted(filter(self.pattern.search, (t.name for t in state.user_topics())))
        return self.topics


def subscription_of(
    state: StoreState, topics: Iterable[str] | str | None, pattern: str | None
) -> Subscription:
    """A checked subscription; NotFoundError for an unknown topic, InvalidRequestError else."""
    names = checked_topics(topics)
    if (names is None) == (pattern is None):
        raise InvalidRequestError("name either topics or a pattern")
    if pattern is not None:
        return Subscription(pattern=_compiled(pattern))
    for name in names or ():
        state.topic(name)
    return Subscription(topics=tuple(dict.fromkeys(names or ())))


def checked_topics(topics: Iterable[str] | str | None) -> tuple[str, ...] | None:
    """The names of topics, at least one; None when a pattern is to choose them."""
    if topics is None:
        return None
    names = checked_names(topics)
    if not names:
        raise InvalidRequestError("topics is empty: name at least one")
    return tuple(names)


def _compiled(pattern: object) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        raise InvalidRequestError(f"pattern must be text, not {type(pattern).__name__}")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRequestError(
            f"pattern {pattern!r} is not a regular expression: {error}", pattern=pattern
        ) from error


def assignment_of(state: StoreState, partitions: Partitions) -> Subscription:
    """A checked choice of partitions by hand."""
    chosen = checked_partitions(partitions)
    for name, numbers in chosen.items():
        topic = state.topic(name)
        for number in numbers:
            topic.partition(number)
    return Subscription(assigned={name: tuple(numbers) for name, numbers in chosen.items()})


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers per topic, as users see them."""
    found: dict[str, list[int]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each.partition)
    return {topic: sorted(numbers) for topic, numbers in found.items()}
