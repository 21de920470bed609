"""Records on their way to a caller: what is next in hand, and what a call took.

A record counts as handed out only when nothing can come between it and its caller any more. Until
then the call may be interrupted, or an awaiting task cancelled, and the next call begins where this
one did. So positions change by plain assignments only: between these, Python runs no signal handler
and switches no threads.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kmq_spark.client.consuming.subscription import TopicPartition
from kmq_spark.client.records.record import Record
from kmq_storage.log.reading.few_records import Part

T = TypeVar("T")
#: No limit to the rows or bytes of a call.
ANY = sys.maxsize


@dataclass(slots=True)
class Hand:
    """The records of one slice, which are handed out next."""

    source: tuple[TopicPartition, Part] | None = None
    records: list[Record] = field(default_factory=list)
    #: How many `poll` may hand out directly; 0 once the consumer is to look at its group.
    size: int = 0
    #: How many of them were handed out.
    taken: int = 0


@dataclass(slots=True)
class Holding:
    """What a consumer has in hand, and where a call began that has handed out nothing yet."""

    hand: Hand = field(default_factory=Hand)
    #: The positions of the partitions that it read, before it did.
    before: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taken(Generic[T]):
    """What a call took."""

    value: T
    holding: Holding
    before: dict[TopicPartition, int]
    hand: Hand
    #: How many records of the hand this call hands out.
    upto: int

    def hand_out(self) -> T:
        """Count it as handed out; called right before it is returned."""
        holding, hand = self.holding, self.hand
        if holding.before is self.before:  # no call went back meanwhile
            hand.taken, holding.hand, holding.before = self.upto, hand, {}
        return self.value
