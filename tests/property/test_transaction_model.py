"""Producers with transactions under random calls, against lists in memory.

Finds: records of a transaction that are seen before its commit, stored without it or without each
other, doubled, out of order or interleaved, acknowledgements without what was made of them, futures
that tell something else, and fenced producers that write.
"""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import kmq_spark as kmq
from kmq_storage import limits

TOPICS, NOWHERE, QUEUE = ("a", "b", "small"), "nowhere", "queue:q"
_WHICH, _GOOD = st.integers(0, 1), st.booleans()
#: Topic, call, how many records, and of how many bytes.
_SEND = st.tuples(
    st.sampled_from(("a", "a", "a", "b", "b", QUEUE, QUEUE, "small", NOWHERE)),
    st.sampled_from(("one", "many", "arrow")),
    st.integers(1, 4),
    st.sampled_from((0, 400)),
)
_SMALL = 12


@dataclass
class Sender:
    """A producer, and what it shall have sent."""

    producer: kmq.Producer
    name: str
    fenced: bool = False
    #: Values by topic, and the offset for the group, of the open transaction.
    open: dict[str, list[bytes]] | None = None
    offset: int | None = None
    transaction: Any = None
    #: What it acknowledges.
    acks: list[kmq.Delivery] = field(default_factory=list)
    futures: list[Future[Any]] = field(default_factory=list)


class TransactionModel(RuleBasedStateMachine):
    """Three producers of two identities; what is committed is known at every step."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(limits, "TRANSACTION_MEMORY_BYTES", 700)
        self.store = kmq.open(f"memory://{uuid.uuid4().hex}", maintenance=False)
        for topic in TOPICS:
            self.store.create_topic(topic, capacity=_SMALL if topic == "small" else None)
        self.store.create_queue("q", lock_timeout=10_000)
        self.queue = self.store.queue("q")
        #: What was received and not acknowledged by a commit, and how many were.
        self.held: list[kmq.Delivery] = []
        self.acked = 0
        self.stored: dict[str, list[bytes]] = {topic: [] for topic in (*TOPICS, QUEUE)}
        self.committed: int | None = None
        self.senders = [self._new("x"), self._new("y")]
        self.count = 0

    def _new(self, name: str) -> Sender:
        return Sender(self.store.producer(transactional_id=name, linger=0.0), name)

    def _values(self, many: int, size: int) -> list[bytes]:
        self.count += many
        return [b"%d" % n + b"." * size for n in range(self.count - many, self.count)]

    @rule(which=_WHICH, send=_SEND)
    def send(self, which: int, send: tuple[str, str, int, int]) -> None:
        topic, how, many, size = send
        self._send(which, topic, how, self._values(1 if how == "one" else many, size))

    @rule(
        which=_WHICH,
        sends=st.lists(_SEND, max_size=4),
        offset=st.integers(-3, 3),
        acks=st.integers(0, 2),
        good=_GOOD,
    )
    def run_one(self, which: int, sends: Any, offset: int, acks: int, *, good: bool) -> None:
        """A transaction from its beginning to its end; -1 and below: without an offset."""
        if self.senders[which].open is not None:
            return
        self.begin(which)
        for send in sends:
            if self.senders[which].open is not None:
                self.send(which, send)
        if offset >= 0:
            self.commit_offset(which, offset)
        for number in range(acks):
            self.receive(1)
            self.ack(which, number)
        self.commit(which) if good else self.abort(which)

    def _send(self, which: int, topic: str, how: str, values: list[bytes]) -> None:
        sender, future = self.senders[which], Future[Any]()
        try:
            if topic == QUEUE:
                future = self._send_to_queue(sender.producer, how, values)
            elif how == "one":
                future = sender.producer.send(topic, values[0])
            elif how == "many":
                future = sender.producer.send_batch(topic, values)
            else:
                future = sender.producer.send_arrow(topic, pa.table({"value": values}))
        except kmq.TransactionAbortedError:  # refused early, on its way into a file
            assert sender.open is not None
            sender.producer.abort_transaction()
            self._aborted(sender)
            return
        if sender.open is not None:
            sender.open[topic] += values
            sender.futures.append(future)
            assert not future.done()
            return
        error = future.exception(10)
        full = topic == "small" and len(self.stored[topic]) + len(values) > _SMALL
        if sender.fenced:
            assert isinstance(error, kmq.FencedError | kmq.QueueFullError | kmq.NotFoundError)
        elif full:
            assert isinstance(error, kmq.QueueFullError)
        elif topic == NOWHERE:
            assert isinstance(error, kmq.NotFoundError)
        else:
            assert error is None
            self.stored[topic] += values

    def _send_to_queue(self, producer: kmq.Producer, how: str, values: list[bytes]) -> Future[Any]:
        if how == "arrow":
            return producer.send_arrow_to_queue("q", pa.table({"value": values}))
        return [producer.send_to_queue("q", value) for value in values][-1]

    @rule(most=st.integers(1, 3))
    def receive(self, most: int) -> None:
        """In the order in which they were stored."""
        begin = self.acked + len(self.held)
        got = self.queue.receive(most)
        assert [each.value for each in got] == self.stored[QUEUE][begin : begin + most]
        self.held += got

    @rule(which=_WHICH, number=st.integers(0, 3))
    def ack(self, which: int, number: int) -> None:
        """By a transaction, or at once; two transactions may do it for one."""
        sender = self.senders[which]
        if number >= len(self.held):
            return
        held = self.held[number]
        if sender.open is None:
            held.ack()
            self._acknowledged([held])
        else:
            sender.transaction.ack(held)
            sender.acks = [each for each in sender.acks if each is not held] + [held]

    def _acknowledged(self, deliveries: list[kmq.Delivery]) -> None:
        self.held = [each for each in self.held if each not in deliveries]
        self.acked += len(deliveries)

    @rule(which=_WHICH)
    def begin(self, which: int) -> None:
        sender = self.senders[which]
        if sender.open is None:
            try:
                sender.transaction = sender.producer.begin_transaction()
            except kmq.FencedError:
                assert sender.fenced
                return
            sender.open = {topic: [] for topic in (*TOPICS, QUEUE, NOWHERE)}
            sender.offset, sender.futures, sender.acks = None, [], []

    @rule(which=_WHICH, offset=st.integers(0, 10))
    def commit_offset(self, which: int, offset: int) -> None:
        sender = self.senders[which]
        if sender.open is not None:
            sender.producer.send_offsets_to_transaction({"a": {0: offset}}, "g")
            sender.offset = offset

    @rule(which=_WHICH)
    def abort(self, which: int) -> None:
        sender = self.senders[which]
        if sender.open is not None:
            sender.producer.abort_transaction()
            self._aborted(sender)

    def _aborted(self, sender: Sender) -> None:
        for future in sender.futures:
            assert isinstance(future.exception(10), kmq.TransactionAbortedError)
        sender.open = None

    @rule(which=_WHICH)
    def commit(self, which: int) -> None:
        sender = self.senders[which]
        if sender.open is None:
            return
        fits = len(self.stored["small"]) + len(sender.open["small"]) <= _SMALL
        end = len(self.stored["a"]) + len(sender.open["a"])
        is_nothing = sender.offset is None and not (any(sender.open.values()) or sender.acks)
        good = fits and (sender.offset is None or sender.offset <= end) and not sender.open[NOWHERE]
        good = good and all(each in self.held for each in sender.acks)
        try:
            sender.producer.commit_transaction()
        except (kmq.FencedError, kmq.TransactionAbortedError):
            assert sender.fenced or not good
            self._aborted(sender)
            return
        assert is_nothing or (good and not sender.fenced)
        for topic in self.stored:
            self.stored[topic] += sender.open[topic]
        self._acknowledged(sender.acks)
        self.committed = self.committed if sender.offset is None else sender.offset
        assert all(future.exception(0) is None for future in sender.futures)
        sender.open = None

    @rule(first=_WHICH, send=_SEND)
    def make_two_of_one(self, first: int, send: tuple[str, str, int, int]) -> None:
        """Two transactions acknowledge the same record; the second one is aborted."""
        self.receive(1)
        for which in (first, 1 - first):
            self.begin(which)
            if self.senders[which].open is not None:
                self.ack(which, 0)
                self.send(which, send)
        for which in (first, 1 - first):
            self.commit(which)

    @rule(which=_WHICH, sends=st.lists(_SEND, max_size=2))
    def open_again(self, which: int, sends: Any) -> None:
        """A newer instance takes over; the older one goes on without knowing it."""
        for send in sends:
            self.begin(which)
            self.send(which, send)
        newer = self._new(self.senders[which].name)
        self.senders[which].fenced = True
        if self.senders[which].open is not None:
            self.commit(which)
        self.senders[which].producer.close()
        self.senders[which] = newer

    @invariant()
    def exactly_what_was_committed_is_there(self) -> None:
        for topic in TOPICS:
            with self.store.consumer(topics=[topic]) as consumer:
                found = [record.value for record in consumer.consume(10_000, timeout=0)]
            assert found == self.stored[topic], topic
        stats = self.queue.stats()
        waiting = len(self.stored[QUEUE]) - self.acked - len(self.held)
        assert (stats.ready, stats.locked, stats.acked) == (waiting, len(self.held), self.acked)
        groups = [group.name for group in self.store.groups()]
        if self.committed is None:
            assert groups == []
        else:
            assert self.store.describe_group("g").committed == {"a": {0: self.committed}}

    def teardown(self) -> None:
        try:
            for sender in self.senders:
                sender.producer.close()
                if sender.open is not None:
                    self._aborted(sender)
            self.exactly_what_was_committed_is_there()
            self.store.close()
        finally:  # also when a planted mistake is found
            self._patch.undo()


TestTransactions = TransactionModel.TestCase
TestTransactions.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
