"""The path of each record of a queue against what the queue counts and still has.

Finds: a record that is finished and looks as if it waited, one that ends twice, and one that is
told to have expired, been refused or acknowledged and is there.
"""

from __future__ import annotations

import random
import uuid
from contextlib import suppress
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_storage.model import to_datetime
from tests.support.clock import Clock

_ENDS = ("acked", "dead-lettered", "recalled", "expired", "refused")
_FILTERS = (None, "n > 2", "n in (1, 5)")


class _Work:
    """Senders and receivers of one queue that do anything at any time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._clock = rng, Clock()
        name = f"memory://{uuid.uuid4().hex}"
        clock, how = self._clock.environment, rng.choice(["os", "fsync"])
        self.store = open_store(name, environment=clock, maintenance=False, durability=how)
        self._order = rng.choice(["none", "key", "strict"])
        self.store.create_topic("t")
        self.store.create_queue(
            "q", order=self._order, max_deliveries=rng.choice([1, 2, None]), backoff=(0, 5)
        )
        self.bind()
        self.queue = self.store.queue("q", prefetch=rng.choice([1, 64]))
        self._producer = self.store.producer(linger=0)
        self._held: list[kmq.Delivery] = []
        self._sent: list[kmq.RecordMetadata] = []

    def bind(self) -> None:
        self.store.bind_queue("q", "t", filter=self._rng.choice(_FILTERS))

    def send(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            key, facts = self._rng.choice([b"a", b"b", None]), {"n": self._rng.randint(0, 6)}
            self._producer.send("t", b"v", key=key, properties=facts).result(10)

    def send_to_queue(self) -> None:
        now = to_datetime(self._clock.environment.now_us())
        expires = now + timedelta(seconds=self._rng.choice([-1, 1, 5, 20, 10**6]))
        delay, priority = self._rng.choice([None, 1, 5]), self._rng.choice([4, 0, 9])
        future = self._producer.send_to_queue(
            "q", b"d", delay=delay, expires_at=expires,
            priority=priority if self._order == "none" else None,
        )  # fmt: skip
        self._sent.append(future.result(10))

    def receive(self) -> None:
        self._held += self.queue.receive(self._rng.randint(1, 4))

    def recall(self) -> None:
        if self._sent:
            self.queue.recall(self._rng.choice(self._sent))

    def wait(self) -> None:
        self._clock.pass_seconds(self._rng.choice([0.5, 3, 10, 40]))

    def answer(self) -> None:
        if not self._held:
            return
        delivery = self._held.pop(self._rng.randrange(len(self._held)))
        answer = self._rng.choice(["ack", "ack", "nack", "reject", "extend"])
        with suppress(kmq.LeaseExpiredError):
            getattr(delivery, answer)(*[5] * (answer == "extend"))

    def redrive(self) -> None:
        self.queue.redrive()

    def let_time_stand_still(self) -> None:
        """Have everything expire or end that would while the outcome is looked at."""
        self._clock.pass_seconds(100)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 60))
def test_each_record_ends_once_or_is_there_and_the_queue_counts_the_same(seed: int, steps: int):
    # Not `st.randoms()`: what comes when depends on the threads of the queue.
    work = _Work(rng := random.Random(seed))
    calls = [work.send, work.send_to_queue, work.receive, work.answer, work.wait]
    for _ in range(steps):
        rng.choice([*calls * 5, work.receive, work.answer, work.recall, work.redrive, work.bind])()
    work.let_time_stand_still()
    stats, counts = work.queue.stats(), dict.fromkeys(_ENDS, 0)
    there = {(row["topic"], row["offset"]) for row in work.queue.state().to_pylist()}
    for topic, name in (("t", "t"), (None, "queue:q")):
        for offset in range(work.store.offsets(name)[0][1]):
            told = [step.event for step in work.store.trace(name, 0, offset)]
            ends = [event for event in told if event in _ENDS]
            assert len(ends) == 1 - ((topic, offset) in there), (name, offset, told)
            for event in ends:
                counts[event] += 1
    counted = (counts["acked"], counts["dead-lettered"], counts["expired"])
    assert counted == (stats.acked, stats.dead, stats.expired)
    work.store.close()
