"""A delivery: a record in the hands of a receiver, until it is answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, NoReturn, Protocol, SupportsIndex

from kmq_spark.client.handles.resource import stays_here
from kmq_spark.client.queues.reasons import Reason
from kmq_spark.client.records.record import Record
from kmq_spark.errors import IllegalStateError, InvalidRequestError
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import AnswerEntry, Run
from kmq_storage.model import to_datetime
from kmq_storage.objects.fork import generation
from kmq_storage.queues.handing import merged

#: Gets the key, the offset and the delivery number of a delivery.
_FACTS = itemgetter(10, 2, 9)


class Answers(Protocol):
    """What takes the answers for deliveries: a queue's handle."""

    #: What its deliveries are.
    _kind: type[Delivery]
    #: The handle for asyncio, through which answers are awaited, if there is one.
    _awaited: Any

    def ack(self, deliveries: Any) -> None:
        """Acknowledge deliveries."""

    def _ack_entry(self, deliveries: Iterable[Delivery]) -> AnswerEntry:
        """Return the entry that acknowledges these; a late delivery is refused at its commit."""

    def nack(self, delivery: Delivery, delay: float | timedelta | None, reason: Reason) -> None:
        """Have a record handed out again."""

    def reject(self, delivery: Delivery, reason: Reason) -> None:
        """Make a record a dead letter."""

    def extend(self, delivery: Delivery, seconds: float | timedelta) -> None:
        """Hold a record longer."""


class Notes(Protocol):
    """Notes which records are acknowledged, in place of a commit for each."""

    def note(self, records: Sequence[tuple[Key, int]]) -> bool:
        """Note that records are acknowledged, all or none; False when it takes a commit."""

    def answer_by_commit(self, records: Sequence[tuple[Key, int]]) -> None:
        """Note nothing of these records any more."""


class Hold:
    """What deliveries that were received together share."""

    __slots__ = ("extended", "generation", "id_in_store", "notes", "queue", "until")

    def __init__(
        self,
        queue: Answers,
        id_in_store: bytes,
        until: int,
        generation: int,
        notes: Notes | None,
    ) -> None:
        self.queue = queue
        #: Tells the queue from a later one of its name, and from that in a clone.
        self.id_in_store = id_in_store
        self.notes = notes
        #: UTC microseconds.
        self.until = until
        #: The fork generation of the process: a forked child doesn't hold what its parent holds.
        self.generation = generation
        self.extended: dict[tuple[Key, int], int] = {}


def check_own(received_in: int) -> None:
    """IllegalStateError for a delivery that was received before this process was forked."""
    if received_in < generation():
        raise IllegalStateError(
            "the delivery was received before this process was forked, and is its parent's to "
            "answer: receive here what this process is to handle"
        )


class Delivery(Record):
    """One record of a queue, held until it is answered or until `locked_until`.

    It has the attributes of a Record, and `delivery_count` and `locked_until`. Answer it with
    `ack`, `nack`, `reject` or `extend`. A late answer raises LeaseExpiredError and changes nothing.
    """

    __slots__ = ()

    _number: int = property(itemgetter(9))  # type: ignore[assignment]
    _key: Key = property(itemgetter(10))  # type: ignore[assignment]
    hold: Hold = property(itemgetter(11))  # type: ignore[assignment]
    #: The key of its partition, and its offset.
    place: tuple[Key, int] = property(itemgetter(10, 2))  # type: ignore[assignment]

    @property
    def run(self) -> Run:
        """The run of one record that an answer names."""
        return Run(*self._key, self.offset, 1, self._number)

    @property
    def delivery_count(self) -> int:
        """How often the record was handed out, this time included."""
        return int(times_of(self._number))

    @property
    def locked_until(self) -> datetime:
        """When another receiver may get the record, in UTC."""
        hold = self.hold
        return to_datetime(hold.extended.get(self.place, hold.until))

    def ack(self) -> None:
        """Acknowledge the record: it is finished, and nobody gets it again."""
        self.hold.queue.ack(self)

    def nack(self, delay: float | timedelta | None = None, reason: Reason = None) -> None:
        """Have the record handed out again, after `delay` seconds or as the queue's `backoff` says.

        At the last of `max_deliveries` it becomes a dead letter instead, with this reason: text, or
        the exception that was caught. Before, `store.trace` tells the reason.
        """
        self.hold.queue.nack(self, delay, reason)

    def reject(self, reason: Reason = None) -> None:
        """Make the record a dead letter at once, with this reason: text, or an exception."""
        self.hold.queue.reject(self, reason)

    def extend(self, seconds: float | timedelta) -> None:
        """Hold the record until `seconds` from now."""
        self.hold.queue.extend(self, seconds)

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise stays_here("Delivery")  # it is answered by the queue's handle

    def __repr__(self) -> str:
        return (
            f"Delivery(queue={self.queue!r}, topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, delivery_count={self.delivery_count})"
        )


def several(deliveries: Any, *others: type) -> list[Any]:
    """Return one delivery or several as a list; InvalidRequestError for anything else.

    `others`: kinds that will do, too.
    """
    if isinstance(deliveries, Delivery):
        return [deliveries]
    some = list(deliveries) if isinstance(deliveries, Iterable) else [deliveries]
    for each in some:
        if not isinstance(each, (Delivery, *others)):
            raise InvalidRequestError(
                f"ack takes deliveries of queues or a table of them, not {each!r:.80}"
            )
    return some


def runs_of_deliveries(deliveries: Iterable[Delivery]) -> list[Run]:
    """Return the runs that an answer for all of these names."""
    facts = map(_FACTS, deliveries)  # without a `Run` for each
    return merged((*key, offset, 1, number) for key, offset, number in facts)
