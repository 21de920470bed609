"""A listener that answers what a test says, and remembers what it got."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_spark.client.orderly.reader import Reader
from kmq_storage.environment import Environment

SUCCESS = kmq.OrderlyStatus.SUCCESS
SUSPEND = kmq.OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
COMMIT = kmq.OrderlyStatus.COMMIT
ROLLBACK = kmq.OrderlyStatus.ROLLBACK

Call = list[tuple[int, int]]


class Listener:
    """Answers SUCCESS, or what `answer(records, context)` says; `calls` are places by call."""

    def __init__(
        self, answer: Callable[[list[kmq.Record], kmq.OrderlyContext], Any] = lambda r, c: SUCCESS
    ) -> None:
        self._answer = answer
        self._changed = threading.Condition()
        self.calls: list[Call] = []
        self.answered = 0

    def __call__(self, records: list[kmq.Record], context: kmq.OrderlyContext) -> Any:
        with self._changed:
            self.calls.append([(each.partition, each.offset) for each in records])
            self._changed.notify_all()
        try:
            return self._answer(records, context)
        finally:
            with self._changed:
                self.answered += 1
                self._changed.notify_all()

    def hear(self, calls: int) -> list[Call]:
        """The calls, once so many of them were answered."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.answered >= calls, 120), self.calls
            return list(self.calls)

    def offsets(self, partition: int = 0) -> list[int]:
        """The offsets of a partition as they came."""
        return [offset for call in self.calls for number, offset in call if number == partition]


class Gate:
    """Answers SUCCESS, but has first records wait until it is open.

    Those of each partition, or of the one that is named, or of one topic's.
    """

    def __init__(self, whose: int | str | None = None) -> None:
        self._whose = whose
        self.opened = threading.Event()

    def __call__(self, records: list[kmq.Record], context: kmq.OrderlyContext) -> Any:
        is_meant = self._whose in (None, context.partition, context.topic)
        if records[0].offset == 0 and is_meant:
            assert self.opened.wait(120)
        return SUCCESS


def scripted(*answers: Any) -> Callable[[list[kmq.Record], kmq.OrderlyContext], Any]:
    """One answer after the other, then SUCCESS; an exception is raised."""
    left = iter(answers)

    def answer(records: list[kmq.Record], context: kmq.OrderlyContext) -> Any:
        found = next(left, SUCCESS)
        if isinstance(found, BaseException):
            raise found
        return found

    return answer


def fill(store: kmq.Store, counts: dict[int, int], topic: str = "t") -> None:
    """Send so many records to each partition."""
    with store.producer() as producer:
        for partition, count in counts.items():
            producer.send_batch(topic, [b"%d" % n for n in range(count)], partition=partition)


def orderly(store: kmq.Store, listener: Any, **options: Any) -> kmq.OrderlyConsumer:
    """An orderly consumer of topic `t` in group `g`, whose suspensions are short."""
    options = {"suspend_current_queue_time": 0.010, **options}
    return store.orderly_consumer("g", ["t"], listener, **options)


def committed(store: kmq.Store) -> dict[int, int]:
    """What group `g` committed for topic `t`."""
    return dict(store.describe_group("g").committed.get("t", {}))


def leaving(consumer: kmq.OrderlyConsumer) -> list[int]:
    """The partitions of topic `t` that shall be another member's, but are not yet."""
    queues = consumer.process_queues().get("t", {})
    return [number for number, state in queues.items() if state.is_leaving]


class Shop:
    """A store in memory whose clock can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0
        environment = Environment(monotonic=lambda: time.monotonic() + self.ahead)
        self.store = open_store(f"memory://{uuid.uuid4().hex}", environment=environment)

    def orderly(self, listener: Any, **options: Any) -> kmq.OrderlyConsumer:
        return orderly(self.store, listener, **options)

    def committed(self) -> dict[int, int]:
        return committed(self.store)


@contextmanager
def standing(consumer: kmq.OrderlyConsumer) -> Iterator[Reader]:
    """What the thread reads by that reads for it: meanwhile it doesn't look at the group."""
    assert consumer._reading is not None
    reader = consumer._reading._reader
    while not reader._busy.acquire(timeout=0.01):
        reader.call()  # so that the call that waits ends
    try:
        yield reader
    finally:
        reader._busy.release()


@contextmanager
def taken_over(consumer: kmq.OrderlyConsumer, other: kmq.Consumer) -> Iterator[None]:
    """A member was taken for dead and doesn't know yet; another one read all that it had."""
    with standing(consumer) as reader:
        assert reader._member is not None
        other.unsubscribe()  # a member that reads nothing yet
        reader._member.place.step_back()
        other.subscribe(["t"])
        assert other.assignment() == {"t": [0, 1]}
        assert len(other.consume(timeout=0)) == 20
        yield
