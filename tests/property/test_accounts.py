"""Receiving from keyed queues under random calls, against a list of messages per queue and group.

Two handles receive with clocks of the test; queues are deleted, trimmed, sealed and merged
meanwhile. Finds: a message that two hold or nobody gets any more, an answer that counts too late, a
message of a former life or one that was trimmed, an account that is lost or mixed up with another.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.client.keyed.receiving import KeyedDelivery
from kmq_spark.client.store import Store
from kmq_spark.errors import LeaseExpiredError
from kmq_storage.environment import Environment
from kmq_storage.keyed import account
from kmq_storage.objects.memory import MemoryDisk
from tests.support.storage import open_log

TOPIC = "inbox"
handles = st.integers(0, 1)
names = st.sampled_from(["a", "b", "c"])
groups = st.sampled_from(["g", "h"])
#: No sum of the waits below is one of these, so microseconds decide nothing.
LOCK, DELAY, LONGER = 10.003, 3.001, 7.002


@dataclass
class _Message:
    """A message as one group has it."""

    value: bytes
    index: int
    offset: int
    #: When it may be had, and how often it was.
    at: float = 0.0
    count: int = 0
    is_held: bool = False
    is_done: bool = False


class AccountModel(RuleBasedStateMachine):
    """The model: per queue and group the messages, each with what became of it."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(account, "UNDER_WAY_MAX", 4)
        self.now = 1_000_000.0
        self.sent = 0
        self.messages: dict[tuple[str, str], list[_Message]] = {}
        #: The next index of each queue.
        self.ends: dict[str, int] = {}
        self.hands: list[tuple[KeyedDelivery, _Message]] = []
        self.stores: list[Store] = []

    def teardown(self) -> None:
        """Give back the limit."""
        self.patch.undo()
        for store in self.stores:
            store.close()

    @initialize()
    def open(self) -> None:
        """Two handles on an empty store."""
        self.files = MemoryDisk(f"memory://{uuid.uuid4().hex}")
        self.stores = [self._opened(), self._opened()]

    def _opened(self) -> Store:
        clock = Environment(now_ns=lambda: round(self.now * 1e9))
        log = open_log(self.files, durable=False, file_bytes=16_384, environment=clock)
        store = Store(log, maintenance=False)
        store.keyed_queues(TOPIC)
        return store

    def _queues(self, handle: int) -> KeyedQueues:
        return self.stores[handle].keyed_queues(TOPIC)

    def _of(self, group: str, queue: str) -> list[_Message]:
        return self.messages.setdefault((group, queue), [])

    @rule(handle=handles, queues=st.lists(names, min_size=1, max_size=5))
    def put(self, handle: int, queues: list[str]) -> None:
        """Messages for some queues."""
        values = [b"%d" % (self.sent + n) for n in range(len(queues))]
        self.sent += len(queues)
        indexes = self._queues(handle).put_batch(queues, values)
        _, end = self.stores[handle].offsets(TOPIC)[0]
        offsets = range(end - len(values), end)
        for queue, *facts in zip(queues, values, indexes, offsets, strict=True):
            assert facts[1] == self.ends.get(queue, 0)
            self.ends[queue] = facts[1] + 1
            for group in ("g", "h"):
                self._of(group, queue).append(_Message(*facts))

    @rule(handle=handles, queue=names, group=groups, most=st.integers(1, 3))
    def receive(self, handle: int, queue: str, group: str, most: int) -> None:
        """The oldest messages that are free, in order; no more than may be under way."""
        messages = self._of(group, queue)
        begun = [each for each in messages if each.count and not each.is_done]
        wanted = [each for each in begun if each.at <= self.now][:most]
        fresh = [each for each in messages if not each.count]
        room = min(most - len(wanted), account.UNDER_WAY_MAX - len(begun))
        wanted += fresh[: max(room, 0)]
        found = self._queues(handle).receive(queue, most, group=group, lock_timeout=LOCK)
        assert [each.value for each in found] == [each.value for each in wanted]
        for delivery, message in zip(found, wanted, strict=True):
            message.count += 1
            message.at, message.is_held = self.now + LOCK, True
            assert delivery.delivery_count == message.count
            assert delivery.locked_until.timestamp() == pytest.approx(message.at, abs=1e-3)
            assert message.index == delivery.index
            self.hands.append((delivery, message))

    def _is_late(self, delivery: KeyedDelivery, message: _Message) -> bool:
        held = message.is_held and message.at > self.now and not message.is_done
        return not (held and message.count == delivery.delivery_count)

    @rule(number=st.integers(0, 9), what=st.sampled_from(["ack", "nack", "extend"]))
    def answer(self, number: int, what: str) -> None:
        """A delivery is answered, perhaps too late or once more."""
        if number >= len(self.hands):
            return
        delivery, message = self.hands[-1 - number]
        late = self._is_late(delivery, message)
        try:
            {
                "ack": delivery.ack,
                "nack": lambda: delivery.nack(DELAY),
                "extend": lambda: delivery.extend(LONGER),
            }[what]()
        except LeaseExpiredError:
            assert late
            return
        assert not late
        if what == "ack":
            message.is_done = True
        else:
            message.at = self.now + (DELAY if what == "nack" else LONGER)
            message.is_held = what == "extend"

    @rule(handle=handles, group=groups)
    def acknowledge_all(self, handle: int, group: str) -> None:
        """Several at once, or none when one is late."""
        some = [each for each in self.hands[-4:] if each[0].group == group]
        late = any(self._is_late(*each) for each in some)
        twice = len({id(message) for _, message in some}) < len(some)
        try:
            self._queues(handle).ack(delivery for delivery, _ in some)
        except LeaseExpiredError:
            assert late or twice
            return
        assert not late
        for _, message in some:
            message.is_done = True

    @rule(seconds=st.sampled_from([1.13, 4.37, 11.71]))
    def wait(self, seconds: float) -> None:
        """Locks end."""
        self.now += seconds

    @rule(handle=handles, queue=names)
    def delete(self, handle: int, queue: str) -> None:
        """A queue ends: its messages are nobody's any more."""
        self._queues(handle).delete(queue)
        for group in ("g", "h"):
            self.messages.pop((group, queue), None)
        self.ends.pop(queue, None)

    @rule(handle=handles, last=st.integers(0, 6))
    def trim(self, handle: int, last: int) -> None:
        """All but the last records of the topic are given up, whoever holds them."""
        start, end = self.stores[handle].offsets(TOPIC)[0]
        first = max(start, end - last)
        self.stores[handle].trim(TOPIC, {0: first})
        for messages in self.messages.values():
            messages[:] = [each for each in messages if each.offset >= first]

    @rule(handle=handles, what=st.sampled_from(["seal", "compact", "checkpoint", "collect"]))
    def maintain(self, handle: int, what: str) -> None:
        """Messages and accounts move."""
        store = self.stores[handle]
        if what == "compact":
            for topic in store.topics():
                store.compact(topic.name)
        else:
            getattr(store, what)()

    @rule(handle=handles)
    def leave_and_reopen(self, handle: int) -> None:
        """A handle is left as a killed process leaves it."""
        self.hands = []
        self.stores[handle].close()
        self.stores[handle] = self._opened()

    @invariant()
    def lags_count_what_is_not_done(self) -> None:
        """By both handles."""
        for (group, queue), messages in self.messages.items():
            left = sum(not each.is_done for each in messages)
            assert {self._queues(handle).lag(queue, group=group) for handle in (0, 1)} == {left}


TestAccounts = AccountModel.TestCase
TestAccounts.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.reuse, Phase.generate),  # each step starts threads: shrinking takes minutes
)
