"""Kmq's version 2 against the array that it stands for: two brokers, two consumers, transactions.

Finds: any order of sends, transactions, polls, seals and reopened stores after which a poll gives
another message than the array would, or an index is another one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import kmq_spark as kmq
from kmq_spark.v2 import KmqBroker, KmqMessage
from kmq_storage.objects import memory

TOPIC, CAPACITY = "t", 12
brokers = st.integers(0, 1)
ids = st.sampled_from(["a", "b"])


@dataclass
class Array:
    """The model: one array, the place of each consumer, and what each transaction would add."""

    messages: list[int] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    #: None when it can't be committed.
    open: dict[int, list[int] | None] = field(default_factory=dict)

    def add(self, added: list[int] | None) -> bool:
        """All of it or nothing."""
        fits = added is not None and len(self.messages) + len(added) <= CAPACITY
        if added is not None and fits:
            self.messages += added
        return fits

    def poll(self, consumer_id: str) -> int | None:
        """The next one."""
        place = self.places.get(consumer_id)
        if place is None or place == len(self.messages):
            return None
        self.places[consumer_id] = place + 1
        return self.messages[place]


class V2Model(RuleBasedStateMachine):
    """Each broker has a store, a producer and at most one open transaction of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.number = Array(), 0
        self.name = uuid.uuid4().hex
        self.stores: list[kmq.Store] = []
        for _ in range(2):
            self.stores.append(kmq.open(f"memory://{self.name}"))
        self.brokers = [KmqBroker(store) for store in self.stores]
        self.arrays = [broker.create_topic(TOPIC, CAPACITY) for broker in self.brokers]
        self.producers = [broker.create_producer() for broker in self.brokers]

    def teardown(self) -> None:
        """Give back the store."""
        for store in self.stores:
            store.close()
        memory._stores.pop(self.name, None)

    def _next(self) -> KmqMessage:
        self.number += 1
        return KmqMessage(None, self.number)

    @rule(at=brokers)
    def send(self, at: int) -> None:
        """One by itself, or within the broker's transaction."""
        message, producer = self._next(), self.producers[at]
        producer.auto_commit = at not in self.model.open
        if at not in self.model.open:
            assert producer.send(TOPIC, message) == self.model.add([self.number])
            return
        gathered = self.model.open[at]
        fits = gathered is not None and len(self.model.messages) + len(gathered) < CAPACITY
        assert producer.send_without_lock(TOPIC, message) == fits
        self.model.open[at] = [*gathered, self.number] if fits and gathered is not None else None

    @rule(at=brokers)
    def begin(self, at: int) -> None:
        """Unless one is open."""
        self.producers[at].auto_commit = False
        if self.model.open.get(at) is None:
            self.producers[at].begin_transaction(TOPIC)
            self.model.open[at] = []
        else:
            with pytest.raises(kmq.IllegalStateError):
                self.producers[at].begin_transaction(TOPIC)

    @rule(at=brokers)
    def commit(self, at: int) -> None:
        """All that was sent since the beginning, if it fits."""
        if at not in self.model.open:
            with pytest.raises(kmq.IllegalStateError):
                self.producers[at].commit_transaction(TOPIC)
        elif self.model.add(self.model.open[at]):
            self.producers[at].commit_transaction(TOPIC)
            del self.model.open[at]
        else:
            with pytest.raises(kmq.TransactionAbortedError):
                self.producers[at].commit_transaction(TOPIC)
            self.model.open[at] = None

    @rule(at=brokers)
    def abort(self, at: int) -> None:
        """Nothing of it."""
        if at in self.model.open:
            self.producers[at].abort_transaction(TOPIC)
            del self.model.open[at]
        else:
            with pytest.raises(kmq.IllegalStateError):
                self.producers[at].abort_transaction(TOPIC)

    @rule(at=brokers, consumer_id=ids)
    def register(self, at: int, consumer_id: str) -> None:
        """Once, or again."""
        self.arrays[at].register_consumer(consumer_id)
        self.model.places.setdefault(consumer_id, 0)

    @rule(at=brokers, consumer_id=ids, times=st.integers(1, 4))
    def poll(self, at: int, consumer_id: str, times: int) -> None:
        """Some of what is there, or more."""
        for _ in range(times):
            message = self.arrays[at].poll(consumer_id)
            assert (None if message is None else message.body) == self.model.poll(consumer_id)

    @rule(at=brokers)
    def seal(self, at: int) -> None:
        """Records move into a segment."""
        self.stores[at].seal()

    @rule(at=brokers)
    def reopen(self, at: int) -> None:
        """A broker starts anew, and what it had open is gone."""
        self.stores[at].close()
        self.stores[at] = kmq.open(f"memory://{self.name}")
        self.brokers[at] = KmqBroker(self.stores[at])
        self.arrays[at] = self.brokers[at].create_topic(TOPIC)
        self.producers[at] = self.brokers[at].create_producer()
        self.model.open.pop(at, None)

    @invariant()
    def indices(self) -> None:
        """Both are those of the array, for both."""
        for array in self.arrays:
            assert array.current_write_index == len(self.model.messages)
            assert array.current_can_read_max_index == len(self.model.messages) - 1


V2Model.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestV2Model = V2Model.TestCase
