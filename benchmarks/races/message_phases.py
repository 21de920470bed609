"""The two phases of the messaging race, as one producer and one consumer do them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kmq_spark as kmq
from benchmarks.races.race_messages import (
    NAMES,
    OFFSET,
    TRACE,
    WEIGHT,
    batch,
    body,
    heads,
    same,
    tail,
    trace,
    whose,
)
from benchmarks.races.workers import Meter, Took
from kmq_spark import openmessaging as oms

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[np.int64]

USERS = 10
#: Rows of one batch, and of one read.
_TOGETHER, _READ = 4_096, 16_384
#: Headers of a message that is polled: the one that was sent, the name of its topic or queue, its
#: id, two times and two hosts.
_HEADERS = 7
#: Counters whose messages are made at once.
_MADE = 1_024


@dataclass(frozen=True)
class Task:
    """One producer, or one consumer: so many messages of each producer are in each name."""

    path: str
    number: int
    each: int

    @property
    def own(self) -> list[int]:
        """The numbers of the names that a consumer reads: nine topics and a queue, and one more."""
        first = 10 * self.number
        return [*range(first, first + 10), (first + 10) % len(NAMES)]


def _is_queue(name: int) -> bool:
    return NAMES[name].startswith("QUEUE")


def _told(name: int) -> tuple[str | None, str | None]:
    """The headers `Topic` and `Queue` of a message to a name."""
    return (None, NAMES[name]) if _is_queue(name) else (NAMES[name], None)


def prepare(path: str) -> None:
    """Make the topics and queues."""
    with kmq.open(path) as store:
        for number, name in enumerate(NAMES):
            (store.create_queue if _is_queue(number) else store.create_topic)(name)


@cache
def _store(path: str) -> kmq.Store:
    """What the threads of a process share; it is killed with the process."""
    return kmq.open(path)


def send_batches(task: Task) -> Took:
    """Send the messages of a producer as record batches."""
    meter = Meter()
    with _store(task.path).producer() as producer, meter.timing():
        for first in range(0, task.each, _TOGETHER):
            behind = min(first + _TOGETHER, task.each)
            for number, name in enumerate(NAMES):
                rows = batch(number, task.number, first, behind)
                if _is_queue(number):
                    producer.send_arrow_to_queue(name, rows)
                else:
                    producer.send_arrow(name, rows)
        assert producer.flush() == 0, "everything is on disk"
    return meter.took()


def pull_batches(task: Task) -> Took:
    """Read everything of a consumer as tables; those of the queue are acknowledged."""
    meter, expected = Meter(), np.zeros((len(NAMES), USERS), np.int64)
    topics = {NAMES[n]: n for n in task.own if not _is_queue(n)}
    (number,) = (n for n in task.own if _is_queue(n))
    store = _store(task.path)
    queue = store.queue(NAMES[number])
    with store.consumer(topics=list(topics)) as consumer, meter.timing():
        while (table := consumer.consume_arrow(_READ, timeout=0.0)) is not None:
            for rows in table.to_batches():
                names = rows.column("topic")
                assert pc.all(pc.equal(names, names[0])).as_py(), "a topic"
                topic = topics[names[0].as_py()]
                expect(rows, topic, expected[topic])
        while (table := queue.receive_arrow(_READ)).num_rows:
            _expect_no_keys(table)  # nobody gets them again
            for rows in table.to_batches():
                assert rows.column("topic").null_count == rows.num_rows, "a topic"
                expect(rows, number, expected[number])
            queue.ack(table)
    _expect_all(task, expected)
    return meter.took()


def expect(rows: pa.RecordBatch, name: int, expected: _Numbers) -> None:
    """AssertionError unless each producer's messages are the next ones, field by field."""
    producers, counters = whose(rows.column("value"))
    for producer in np.unique(producers).tolist():
        found = np.flatnonzero(producers == producer)
        first, behind = int(expected[producer]), int(expected[producer]) + len(found)
        assert (counters[found] == np.arange(first, behind)).all(), "a counter"
        dense = found[-1] - found[0] + 1 == len(found)
        part = rows.slice(found[0], len(found)) if dense else rows.take(pa.array(found))
        assert same(part, batch(name, producer, first, behind)), "a content"
        expected[producer] = behind


def _expect_all(task: Task, found: _Numbers) -> None:
    wanted = np.zeros_like(found)
    wanted[task.own] = task.each
    assert (found == wanted).all(), "the number of messages"


def send_calls(task: Task) -> Took:
    """Send the messages of a producer with a call for each."""
    meter, settings = Meter(), oms.KeyValue().put("STORE_PATH", task.path)
    producer = oms.Producer(settings)
    makers = [
        producer.create_bytes_message_to_queue
        if _is_queue(number)
        else producer.create_bytes_message_to_topic
        for number in range(len(NAMES))
    ]
    names = list(zip(makers, NAMES, map(tail, range(len(NAMES))), strict=True))
    with meter.timing():
        for counter, head in _made(task.number, task.each):
            text, weight = trace(counter), counter * 0.5
            for make, name, ending in names:
                message = make(name, head + ending)
                message.put_headers(TRACE, text)
                message.put_properties(OFFSET, counter).put_properties(WEIGHT, weight)
                producer.send(message)
        producer.flush()
    return meter.took()


def _made(producer: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Each counter, and what the bodies of its messages begin with."""
    for first in range(0, count, _MADE):
        counters = np.arange(first, min(first + _MADE, count))
        for counter, head in zip(counters.tolist(), heads(producer, counters), strict=True):
            yield counter, head.tobytes()


def pull_calls(task: Task) -> Took:
    """Poll everything of a consumer."""
    meter, settings = Meter(), oms.KeyValue().put("STORE_PATH", task.path)
    found = np.zeros((len(NAMES), USERS), np.int64)
    #: The next counter of each producer, and how bodies end, by what tells topic or queue.
    counters = {_told(number): [0] * USERS for number in task.own}
    endings = {_told(number): tail(number) for number in task.own}
    consumer = oms.PullConsumer(settings)
    (queue,) = (NAMES[n] for n in task.own if _is_queue(n))
    with meter.timing():
        consumer.attach_queue(queue, [NAMES[n] for n in task.own if not _is_queue(n)])
        while (message := consumer.poll()) is not None:
            headers, properties = message.headers(), message.properties()
            told = headers.get_string("Topic"), headers.get_string("Queue")
            found_body = message.get_body() or b""
            producer = int(found_body[9:11])
            counter = counters[told][producer]
            counters[told][producer] = counter + 1
            assert found_body == body(producer, counter, endings[told]), "a counter, or a body"
            assert headers.get_string(TRACE) == trace(counter), "a header"
            assert len(headers.values) == _HEADERS, "the number of headers"
            assert properties.get_long(OFFSET) == counter, "a property"
            assert properties.get_double(WEIGHT) == counter * 0.5, "another one"
            facts = properties.values
            assert len(facts) == 2, "the number of properties"
            assert type(facts[OFFSET]) is int, "the type of a property"
            assert type(facts[WEIGHT]) is float, "the type of another one"
    for number in task.own:
        found[number] = counters[_told(number)]
    _expect_all(task, found)
    return meter.took()


def expect_no_keys(path: str) -> None:
    """AssertionError where a message has a key: none was sent with one, and no poll tells it.

    Of queues it is what nobody has acknowledged, that of their topics among it.
    """
    with kmq.open(path) as store:
        for number, name in enumerate(NAMES):
            if _is_queue(number):
                queue = store.queue(name)
                while (table := queue.receive_arrow()).num_rows:
                    _expect_no_keys(table)
                    queue.ack(table)
            else:
                for rows in store.read(name, columns=["key"]):
                    _expect_no_keys(rows)


def _expect_no_keys(rows: pa.RecordBatch | pa.Table) -> None:
    assert rows.column("key").null_count == rows.num_rows, "a key"


_Phase = Callable[[Task], Took]
PHASES: dict[str, tuple[_Phase, _Phase]] = {
    "batches": (send_batches, pull_batches),
    "calls": (send_calls, pull_calls),
}
