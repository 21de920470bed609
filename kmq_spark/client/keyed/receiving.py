"""Receiving from keyed queues: each message to one receiver at a time, until it is acknowledged.

What a group has done of a queue is its account: a message of another keyed topic. A process that
changes an account takes a turn. Of two that read the same version, the second reads it again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

import numpy as np

from kmq_spark.client.encoding.rows import rows_of_columns
from kmq_spark.client.encoding.units import records_unit
from kmq_spark.client.handles.arguments import (
    checked_count,
    checked_stored_seconds,
    seconds_to_wait,
)
from kmq_spark.client.handles.resource import StaysHere, Stopped
from kmq_spark.client.keyed.values import text_of
from kmq_spark.client.queues.delivery import check_own
from kmq_spark.errors import (
    ConflictError,
    CorruptionError,
    InvalidRequestError,
    KmqError,
    LeaseExpiredError,
)
from kmq_storage import limits
from kmq_storage.cached import cached_property
from kmq_storage.format.turn_entry import TurnEntry
from kmq_storage.keyed.account import Account
from kmq_storage.keyed.reading import Message, QueueReader
from kmq_storage.keyed.topic import ensure_keyed_topic
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import to_datetime
from kmq_storage.names import accounts_of, check_name
from kmq_storage.objects.fork import generation
from kmq_storage.queues.handing import id_in_store, when_interrupted

#: The number of lanes; the queues in one lane are changed one after the other.
_LANES = 1_024
#: How often a change is tried while other processes are faster.
_TURNS = 1_000

#: A change of an account that concerns the message at an offset.
_Change: TypeAlias = Callable[[Account, int], Account]
_Given = TypeVar("_Given")
#: The last commit that a state has, and its `StoreState.losses`.
_Seen: TypeAlias = tuple[int, int]


class KeyedDelivery(StaysHere):
    """A message of a keyed queue, held until it is answered or until `locked_until`.

    Attributes:
        queue: The name of the queue: text where it is UTF-8, else bytes.
        index: The index of the message.
        value: The message as bytes.
        group: The group that it was received for.
        delivery_count: How often it was handed out, this time included.
        locked_until: When another receiver of the group may get it, in UTC.

    A late answer raises LeaseExpiredError and changes nothing.
    """

    __slots__ = (
        *("_receiver", "_name", "_offset", "_generation", "_topic_in_store"),
        *("delivery_count", "group", "index", "locked_until", "queue", "value"),
    )

    def __init__(
        self,
        receiver: GroupReceiver,
        name: bytes,
        message: Message,
        count: int,
        until: int,
        *,
        topic_in_store: bytes,
    ) -> None:
        self._receiver = receiver
        self._topic_in_store = topic_in_store
        self._name = name
        self._offset = message.offset
        self._generation = generation()
        self.group = receiver.group
        self.queue = text_of(name)
        self.index = message.index
        self.value = message.value
        self.delivery_count = count
        self.locked_until: datetime = to_datetime(until)

    def ack(self) -> None:
        """Acknowledge the message: its group never gets it again."""
        self._receiver.ack([self])

    def nack(self, delay: float | timedelta = 0.0) -> None:
        """Have the message handed out again, after `delay` seconds."""
        after = round(checked_stored_seconds("delay", delay) * 1e6)
        self._receiver.move(self, after, is_held=False)

    def extend(self, seconds: float | timedelta) -> None:
        """Hold the message until `seconds` from now."""
        after = round(checked_stored_seconds("seconds", seconds, above=0.0) * 1e6)
        self.locked_until = to_datetime(self._receiver.move(self, after, is_held=True))

    @property
    def topic(self) -> str:
        """The topic of its queue."""
        return self._receiver.topic

    def check_topic(self, topic_in_store: bytes) -> None:
        """LeaseExpiredError when the topic that has its name here and now is another one."""
        if self._topic_in_store != topic_in_store:
            raise LeaseExpiredError(
                f"the message is of another topic {self.topic}, which was deleted or is in another "
                "store: nobody holds the message here any more",
                topic=self.topic,
            )

    def _check_held(self, account: Account, now: int) -> None:
        """LeaseExpiredError unless the message is held by this delivery still."""
        if not account.holds(self._offset, self.delivery_count, now):
            raise LeaseExpiredError(
                f"delivery {self.delivery_count} of message {self.index} of queue {self.queue!r} "
                f"in {self.topic} is not held any more by group {self.group}: it was answered, or "
                "its lock ended; the receiver that has it now answers it",
                topic=self.topic,
                queue=self.queue,
                index=self.index,
                offset=self._offset,
                group=self.group,
                delivery_count=self.delivery_count,
            )

    def __repr__(self) -> str:
        return (
            f"KeyedDelivery(queue={self.queue!r}, index={self.index}, "
            f"delivery_count={self.delivery_count})"
        )


def checked_deliveries(topic: str, deliveries: Any) -> list[KeyedDelivery]:
    """One delivery or some; InvalidRequestError unless all are of this topic."""
    some = list(deliveries) if isinstance(deliveries, Iterable) else [deliveries]
    for each in some:
        if not isinstance(each, KeyedDelivery):
            raise InvalidRequestError(f"ack takes what receive gives, not {each!r:.80}")
        if each.topic != topic:
            raise InvalidRequestError(
                f"the delivery is one of topic {each.topic}, not of {topic}", topic=each.topic
            )
    return some


@dataclass(frozen=True)
class GroupReceiver:
    """One group's receiving from the queues of a topic. Safe for any threads and processes."""

    log: CommitLog
    topic: str
    #: Reads the messages of the topic.
    messages: QueueReader
    group: str

    def __post_init__(self) -> None:
        check_name("group", self.group)
        if "%" in self.group:  # else two topics might share their accounts
            raise InvalidRequestError(
                f"group name {self.group!r} is not allowed for keyed queues: take one without %",
                name=self.group,
            )
        room = max(0, limits.NAME_LENGTH_MAX - len(accounts_of(self.topic, "")))
        if len(self.group) > room:
            raise InvalidRequestError(
                f"group name has {len(self.group)} characters; keyed queues of a topic whose name "
                f"has {len(self.topic)} allow at most {room}",
                name=self.group,
            )

    @property
    def accounts_topic(self) -> str:
        """The keyed topic with an account per queue."""
        return accounts_of(self.topic, self.group)

    @cached_property
    def _accounts(self) -> QueueReader:
        return QueueReader(self.log, self.accounts_topic)

    def receive(
        self,
        queue: bytes,
        most: int,
        timeout: float | None,
        lock_timeout: float | timedelta,
        *,
        stopped: Stopped,
    ) -> list[KeyedDelivery]:
        """As `KeyedQueues.receive`; none once a wait was stopped."""
        most, clock = checked_count("max_records", most), self.log.environment.monotonic
        deadline = clock() + seconds_to_wait(timeout)
        held_for = round(checked_stored_seconds("lock_timeout", lock_timeout, above=0.0) * 1e6)
        while True:
            found, lsn, due = self._turn(lambda state: self._take(state, queue, most, held_for))
            left = deadline - clock()
            if found or left <= 0:
                return found
            self.log.wait(lsn, min(left, due, limits.CLOCK_RECHECK), stopped)
            if stopped():
                return []

    def _take(
        self, state: StoreState, queue: bytes, most: int, held_for: int
    ) -> tuple[list[KeyedDelivery], int, float]:
        """Return what a receiver gets now, as of which commit, and the seconds until more comes."""
        seen, now, account = _seen(state), self.log.now_us(), self._account(state, queue)
        free, full = account.free(now), account.room < most
        found = self.messages.at(queue, free, most)
        if len(found) < most:  # all were checked
            account = self._without_gone(account, queue, account.offsets if full else free)
            room = min(most - len(found), account.room)
            found += self.messages.since(queue, account.next, room)
        if not found:
            return [], seen[0], account.due(now)
        until = self.log.now_us() + held_for  # reading them took time
        account = account.handed_out((message.offset for message in found), until)
        commit = self.log.commit([self._unit(seen, {queue: account})], durable=False)
        counts = {each.offset: each.count for each in account.under_way}
        topic = id_in_store(self.log, account.topic_id)
        held = [
            KeyedDelivery(*(self, queue, each, counts[each.offset], until), topic_in_store=topic)
            for each in found
        ]
        if self.log.durable:
            with when_interrupted(lambda: self.give_back(held)):
                self.log.sync(commit)
        return held, seen[0], 0.0

    def _without_gone(self, account: Account, queue: bytes, offsets: Sequence[int]) -> Account:
        """Return an account without those of these messages that were deleted with the queue."""
        there = self.messages.at(queue, offsets, len(offsets))
        return account.without({*offsets} - {message.offset for message in there})

    def ack(self, deliveries: Sequence[KeyedDelivery]) -> None:
        """As `KeyedQueues.ack`."""
        self._answer(deliveries, _finished)

    def acknowledging(self, deliveries: Sequence[KeyedDelivery]) -> Unit:
        """What acknowledges deliveries within a larger commit; it is refused after another one."""
        return self._answering(self.log.refresh(), deliveries, _finished)

    def move(self, delivery: KeyedDelivery, after: int, *, is_held: bool) -> int:
        """Make a message available again in `after` microseconds; returns that instant (UTC us)."""
        self.log.refresh()
        at = self.log.now_us() + after
        self._answer([delivery], lambda account, offset: account.moved(offset, at, is_held=is_held))
        return at

    def _answer(self, deliveries: Sequence[KeyedDelivery], changed: _Change) -> None:
        """Change the accounts of deliveries, all or none."""
        self._turn(lambda state: self.log.commit([self._answering(state, deliveries, changed)]))

    def _answering(
        self, state: StoreState, deliveries: Sequence[KeyedDelivery], changed: _Change
    ) -> Unit:
        seen, now, accounts = _seen(state), self.log.now_us(), dict[bytes, Account]()
        for each in dict.fromkeys(deliveries):
            check_own(each._generation)
            account = accounts.get(each._name) or self._account(state, each._name)
            each.check_topic(id_in_store(self.log, account.topic_id))
            each._check_held(account, now)
            accounts[each._name] = changed(account, each._offset)
        return self._unit(seen, accounts)

    def give_back(self, deliveries: Sequence[KeyedDelivery]) -> None:
        """Free messages that no receiver got, as if they had never been handed out."""
        if self.log.durable:  # what handed them out is visible once it is synced
            self.log.sync(self.log.written_state().lsn)
        self._answer(deliveries, lambda account, offset: account.given_back(offset))

    def lag(self, queue: bytes) -> int:
        """As `KeyedQueues.lag`."""
        state = self.log.refresh()
        if state.find_topic(self.accounts_topic) is None:
            return self.messages.size(queue)
        account = self._account(state, queue)
        account = self._without_gone(account, queue, account.offsets)
        return len(account.under_way) + self.messages.size_from(queue, account.next)

    def _account(self, state: StoreState, queue: bytes) -> Account:
        topic_id = state.topic(self.topic).id
        found = state.find_topic(self.accounts_topic)
        if found is None:
            ensure_keyed_topic(self.log, self.accounts_topic)
        elif not found.settings.keyed:
            raise InvalidRequestError(
                f"group {self.group} of the queues of {self.topic} needs topic "
                f"{self.accounts_topic}, which is a topic of other records: take another group",
                topic=self.accounts_topic,
                group=self.group,
            )
        first, _ = self._accounts.span(queue)  # above 0 where an older version trimmed it
        stored = self._accounts.messages(queue, first, 1).to_pylist()
        account = self._parsed(queue, stored[0]) if stored else Account(topic_id)
        return account if account.topic_id == topic_id else Account(topic_id)

    def _parsed(self, queue: bytes, stored: bytes) -> Account:
        try:
            return Account.from_bytes(stored)
        except struct.error:
            raise CorruptionError(
                f"what topic {self.accounts_topic} has of queue {queue!r} is not what group "
                f"{self.group} did: another program put it there; delete the queue there, and the "
                "group begins anew with it",
                topic=self.accounts_topic,
                queue=queue,
                group=self.group,
            ) from None

    def _unit(self, seen: _Seen, accounts: Mapping[bytes, Account]) -> Unit:
        """What puts accounts in place of those which were read up to a commit."""
        topic = self.log.refresh().topic(self.accounts_topic)
        keys = [queue for queue in accounts for _ in range(2)]
        values = [value for each in accounts.values() for value in (None, each.to_bytes())]
        times = np.full(len(keys), self.log.environment.now_us())
        unit = records_unit(self.log, topic, rows_of_columns(values, keys, times, {}), 0)
        lanes = {zlib.crc32(queue) % _LANES for queue in accounts}
        turns = (TurnEntry(topic.id, lane, seen[0]) for lane in sorted(lanes))
        return replace(unit, entries=(*unit.entries, *turns), losses=seen[1])

    def _turn(self, change: Callable[[StoreState], _Given]) -> _Given:
        """Return what `change` gives once no other process changed the accounts meanwhile."""
        for _ in range(_TURNS):
            try:
                return change(self.log.refresh())
            except ConflictError as error:
                if not another_was_faster(error):
                    raise
                if self.log.durable:  # then their commits are visible
                    self.log.sync(error.context["lsn"])
        raise ConflictError(
            f"other processes changed what group {self.group} has done in topic {self.topic} "
            f"{_TURNS} times in a row; try again",
            topic=self.topic,
        )


def another_was_faster(error: KmqError) -> bool:
    """Whether accounts were changed since they were read, so that reading them again helps."""
    return isinstance(error, ConflictError) and "lsn" in error.context


def _seen(state: StoreState) -> _Seen:
    return state.lsn, state.losses


def _finished(account: Account, offset: int) -> Account:
    return account.without([offset])
