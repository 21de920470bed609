"""Deleted topics that are remembered: their ends, and how far groups had read them.

A reader that finds a new topic under a deleted one's name can so tell which records it never read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from kmq_storage import limits
from kmq_storage.errors import NotFoundError
from kmq_storage.names import queue_of_log

_Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GoneTopic:
    """A deleted topic: its end by partition, and the offsets that groups had committed."""

    id: bytes
    name: str
    ends: tuple[int, ...]
    groups: Mapping[str, _Offsets]

    @property
    def numbers(self) -> int:
        """The number of offsets to remember."""
        return len(self.ends) + sum(map(len, self.groups.values()))

    def to_json(self) -> list[Any]:
        """The JSON form for a checkpoint."""
        groups = {name: list(offsets.items()) for name, offsets in self.groups.items()}
        return [self.id.hex(), self.name, list(self.ends), groups]

    @classmethod
    def from_json(cls, facts: list[Any]) -> GoneTopic:
        """The topic from its JSON form."""
        topic_id, name, ends, groups = facts
        offsets = {group: dict(map(tuple, pairs)) for group, pairs in groups.items()}
        return cls(bytes.fromhex(topic_id), name, tuple(ends), offsets)


def deleted(kind: str, name: str) -> NotFoundError:
    """The error for a deleted topic or queue, whether or not its name is used again."""
    told = f"{kind.title()}[{name}] doesn't exist. It was deleted; one made since is another."
    return NotFoundError(told, **{kind: name})


class GoneTopics:
    """The topics that were deleted last, in the order of their deletion."""

    def __init__(self, topics: tuple[GoneTopic, ...] = ()) -> None:
        self._by_id = OrderedDict((topic.id, topic) for topic in topics)
        self._numbers = sum(topic.numbers for topic in topics)

    def __iter__(self) -> Iterator[GoneTopic]:
        return iter(list(self._by_id.values()))

    def find(self, topic_id: bytes) -> GoneTopic | None:
        """The deleted topic with this id, while it is remembered."""
        return self._by_id.get(topic_id)

    def missing(self, topic_id: bytes) -> NotFoundError:
        """The error for a topic that does not exist, with its name if that is remembered."""
        topic = self.find(topic_id)
        if topic is None:
            return NotFoundError(f"Topic[{topic_id.hex()}] doesn't exist.", topic_id=topic_id.hex())
        queue = queue_of_log(topic.name)
        return deleted("topic", topic.name) if queue is None else deleted("queue", queue)

    @property
    def last(self) -> bytes | None:
        """The id of the topic that was deleted last; None while none was."""
        return next(reversed(self._by_id), None)

    def since(self, topic_id: bytes) -> list[GoneTopic]:
        """The topics that were deleted after this one; all, if this one is not remembered."""
        newest_first = reversed(list(self))
        return list(takewhile(lambda topic: topic.id != topic_id, newest_first))[::-1]

    def left_by(self, group: str) -> dict[str, list[GoneTopic]]:
        """For each name, the last deleted topic that a group had read, and those after it."""
        left: dict[str, list[GoneTopic]] = {}
        for topic in self:
            if group in topic.groups:
                left[topic.name] = [topic]
            elif topic.name in left:
                left[topic.name].append(topic)
        return left

    def add(self, topic: GoneTopic) -> None:
        """Remember a topic, and forget the oldest ones if there is no room."""
        former = self._by_id.get(topic.id)  # a repair may have put it back
        self._by_id[topic.id] = topic
        self._numbers += topic.numbers - (former.numbers if former else 0)
        while self._numbers > limits.GONE_OFFSETS_REMEMBERED and len(self._by_id) > 1:
            _, oldest = self._by_id.popitem(last=False)
            self._numbers -= oldest.numbers

    def forget_group(self, group: str) -> None:
        """Forget a deleted group, so that a new one with its name has read nothing."""
        for topic in [each for each in self if group in each.groups]:
            groups = {name: topic.groups[name] for name in topic.groups if name != group}
            self._by_id[topic.id] = GoneTopic(topic.id, topic.name, topic.ends, groups)
            self._numbers -= len(topic.groups[group])
