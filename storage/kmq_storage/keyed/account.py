"""A group's account of one keyed queue: which messages were delivered and which are done.

All of it is pure, with times in UTC microseconds. Messages are named by their offsets, which are
never used again in a later life of the queue.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

#: The most messages of one queue that may be under way at a time.
UNDER_WAY_MAX = 1_000
_HEAD = struct.Struct("<16sq")
_ROW = struct.Struct("<qqI?xxx")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A message that was delivered and is not done."""

    offset: int
    #: When it can be delivered again.
    at: int
    #: The number of its deliveries.
    count: int
    #: Whether a receiver holds it until `at`; otherwise it waits for a retry.
    is_held: bool


@dataclass(frozen=True, slots=True)
class Account:
    """A group's account of one queue of a topic."""

    topic_id: bytes
    #: From this offset on, no message was delivered.
    next: int = 0
    #: The messages below it that are not done, by offset.
    under_way: tuple[UnderWay, ...] = ()

    def to_bytes(self) -> bytes:
        """The account as bytes, as its record holds it."""
        rows = (
            _ROW.pack(each.offset, each.at, each.count, each.is_held) for each in self.under_way
        )
        return _HEAD.pack(self.topic_id, self.next) + b"".join(rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> Account:
        """The account from its binary form."""
        topic_id, behind = _HEAD.unpack_from(data)
        rows = (UnderWay(*row) for row in _ROW.iter_unpack(data[_HEAD.size :]))
        return cls(topic_id, behind, tuple(rows))

    @property
    def room(self) -> int:
        """How many more messages may be delivered for the first time."""
        return UNDER_WAY_MAX - len(self.under_way)

    @property
    def offsets(self) -> list[int]:
        """The offsets of the messages under way."""
        return [each.offset for each in self.under_way]

    def free(self, now: int) -> list[int]:
        """The offsets of messages that can be delivered again, the oldest first."""
        return [each.offset for each in self.under_way if each.at <= now]

    def due(self, now: int) -> float:
        """Seconds until a message can be delivered again."""
        return min(((each.at - now) / 1e6 for each in self.under_way), default=math.inf)

    def handed_out(self, offsets: Iterable[int], until: int) -> Account:
        """The account after these messages were delivered, to be held until a time."""
        known = {each.offset: each for each in self.under_way}
        for offset in offsets:
            count = known[offset].count if offset in known else 0
            known[offset] = UnderWay(offset, until, count + 1, is_held=True)
        behind = max((self.next, *(offset + 1 for offset in known)))
        return replace(self, next=behind, under_way=_sorted(known.values()))

    def without(self, offsets: Iterable[int]) -> Account:
        """The account after these messages were finished."""
        gone = set(offsets)
        return replace(
            self, under_way=tuple(each for each in self.under_way if each.offset not in gone)
        )

    def moved(self, offset: int, at: int, *, is_held: bool) -> Account:
        """The account with another time for one message."""
        return self._changed(offset, lambda each: replace(each, at=at, is_held=is_held))

    def given_back(self, offset: int) -> Account:
        """The account as if one message had not been delivered this time."""
        return self._changed(
            offset, lambda each: replace(each, at=0, count=each.count - 1, is_held=False)
        )

    def _changed(self, offset: int, changed: Callable[[UnderWay], UnderWay]) -> Account:
        return replace(
            self,
            under_way=tuple(
                changed(each) if each.offset == offset else each for each in self.under_way
            ),
        )

    def holds(self, offset: int, count: int, now: int) -> bool:
        """Whether the delivery with this number still holds a message."""
        held = [each for each in self.under_way if each.offset == offset and each.is_held]
        return any(each.count == count and each.at > now for each in held)


def _sorted(found: Iterable[UnderWay]) -> tuple[UnderWay, ...]:
    return tuple(sorted(found, key=lambda each: each.offset))
