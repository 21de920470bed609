"""A record in the hands of a receiver, until it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, NoReturn, Protocol, SupportsIndex

from kmq_spark.client.record import Record
from kmq_spark.client.resource import stays_here
from kmq_spark.errors import IllegalStateError, InvalidRequestError
from kmq_storage.deliveries import merged
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import AnswerEntry, Run
from kmq_storage.model import to_datetime
from kmq_storage.objects.fork import generation


class Answers(Protocol):
    """Who takes the answers for deliveries."""

    def ack(self, deliveries: Any) -> None:
        """They are done."""

    def _ack_entry(self, deliveries: Iterable[Delivery]) -> AnswerEntry:
        """What acknowledges these once it is committed; a late one is refused then."""

    def nack(self, delivery: Delivery, delay: float | timedelta | None) -> None:
        """It failed, and comes again."""

    def reject(self, delivery: Delivery, reason: str | None) -> None:
        """It fails for ever."""

    def extend(self, delivery: Delivery, seconds: float | timedelta) -> None:
        """It takes longer."""


class Notes(Protocol):
    """Where it is noted that records are done, instead of a commit for each."""

    def note(self, records: Sequence[tuple[Key, int]]) -> bool:
        """Records are done, all or none; False when that has to be committed."""

    def answer_by_commit(self, records: Sequence[tuple[Key, int]]) -> None:
        """Have nothing noted of records any more."""


class Hold:
    """What deliveries that were received together have in common."""

    __slots__ = ("extended", "generation", "notes", "queue", "queue_id", "until")

    def __init__(
        self,
        queue: Answers,
        queue_id: bytes,
        until: int,
        generation: int,
        notes: Notes | None,
    ) -> None:
        self.queue = queue
        #: Another one than that of a queue that has its name later.
        self.queue_id = queue_id
        self.notes = notes
        #: UTC microseconds.
        self.until = until
        #: Of the process: a forked child doesn't hold what its parent holds.
        self.generation = generation
        self.extended: dict[tuple[Key, int], int] = {}


def check_own(received_in: int) -> None:
    """IllegalStateError for what a process received before it was forked to be this one."""
    if received_in < generation():
        raise IllegalStateError(
            "the delivery was received before this process was forked: it is its parent's to "
            "answer; receive here what this process shall have"
        )


class Delivery(Record):
    """One record of a queue, held until it is answered or `locked_until` has come.

    A late answer raises LeaseExpiredError and changes nothing.
    """

    __slots__ = ()

    _number: int = property(itemgetter(9))  # type: ignore[assignment]
    _key: Key = property(itemgetter(10))  # type: ignore[assignment]
    hold: Hold = property(itemgetter(11))  # type: ignore[assignment]

    @property
    def place(self) -> tuple[Key, int]:
        """Its partition and offset, whatever its topic is called."""
        return self._key, self.offset

    @property
    def run(self) -> Run:
        """What an answer names."""
        return Run(*self._key, self.offset, 1, self._number)

    @property
    def delivery_count(self) -> int:
        """How often it was handed out, this time included."""
        return int(times_of(self._number))

    @property
    def locked_until(self) -> datetime:
        """When it may be handed to somebody else, UTC."""
        hold = self.hold
        return to_datetime(hold.extended.get(self.place, hold.until))

    def ack(self) -> None:
        """It is done; nobody gets it again."""
        self.hold.queue.ack(self)

    def nack(self, delay: float | timedelta | None = None) -> None:
        """It failed: it comes again after `delay` seconds, or as the queue's `backoff` says.

        After `max_deliveries` it becomes a dead letter instead.
        """
        self.hold.queue.nack(self, delay)

    def reject(self, reason: str | None = None) -> None:
        """It fails for ever: it becomes a dead letter at once."""
        self.hold.queue.reject(self, reason)

    def extend(self, seconds: float | timedelta) -> None:
        """It takes longer: it is held until so many seconds from now."""
        self.hold.queue.extend(self, seconds)

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise stays_here("Delivery")  # its answer is one of the queue's handle

    def __repr__(self) -> str:
        return (
            f"Delivery(queue={self.queue!r}, topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, delivery_count={self.delivery_count})"
        )


def several(deliveries: Any) -> list[Delivery]:
    """One delivery or some; InvalidRequestError for anything else."""
    if isinstance(deliveries, Delivery):
        return [deliveries]
    some = list(deliveries) if isinstance(deliveries, Iterable) else [deliveries]
    for each in some:
        if not isinstance(each, Delivery):
            raise InvalidRequestError(f"ack takes deliveries or a table of them, not {each!r:.80}")
    return some


def runs_of_deliveries(deliveries: Iterable[Delivery]) -> list[Run]:
    """What an answer for all of them names."""
    return merged([each.run for each in deliveries])
