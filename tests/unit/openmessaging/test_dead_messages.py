"""Messages that listeners never take: dead letters as the engine's queues make them.

Finds: a letter that can't be stored and stops its queue for ever, or tells less than the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging import access, push
from tests.support.processes import exit_codes, start_python


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "_PAUSE", 0.001)
    monkeypatch.setattr(push, "_LONGEST_PAUSE", 0.001)


@pytest.fixture
def store(settings: oms.KeyValue) -> Iterator[kmq.Store]:
    with kmq.open(str(settings.get_string("STORE_PATH"))) as opened:
        yield opened


def _takes_good_ones_only(message: oms.BytesMessage, _: object) -> None:
    if message.get_body() != b"good":
        raise ValueError(message.get_body())


def _letter(store: kmq.Store, queue: str) -> kmq.Delivery:
    """The next dead letter, as soon as there is one."""
    while queue not in _names(store):
        time.sleep(0.01)
    (letter,) = store.queue(queue).receive(timeout=None)
    return letter


def _names(store: kmq.Store) -> list[str]:
    return [info.name for info in store.queues()]


def test_a_letter_tells_where_it_is_from_and_goes_back(settings: oms.KeyValue, store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", None, key=b"k", headers={"h": b"x"}, properties={"n": 7}).result()
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], _takes_good_ones_only)
        letter = _letter(store, "q.dlq")
    assert (letter.key, letter.value, letter.headers) == (b"k", None, (("h", b"x"),))
    assert dict(letter.properties) == {
        "n": 7,
        "dead_letter_queue": "q",
        "dead_letter_topic": "t",
        "dead_letter_partition": 0,
        "dead_letter_offset": 0,
        "dead_letter_count": 16,
        "dead_letter_reason": "ValueError: None",
    }
    letter.nack(0)
    assert store.queue("q").redrive() == 1


def test_a_letter_is_stored_with_the_position_behind_it(
    settings: oms.KeyValue,
    producer: oms.Producer,
    store: kmq.Store,
    monkeypatch: pytest.MonkeyPatch,
):
    going_on = threading.Event()
    monkeypatch.setattr(oms.PullConsumer, "ack", lambda *_: going_on.wait(60))
    for body in (b"bad", b"good"):
        producer.send(producer.create_bytes_message_to_queue("q", body))
    producer.flush()
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", _takes_good_ones_only)  # type: ignore[arg-type]
        assert _letter(store, "q.dlq").value == b"bad"
        assert store.describe_group("oms.q").committed == {"queue:q": {0: 1}}
        going_on.set()


@pytest.mark.parametrize(("topics", "source"), [(["t"], "t"), ([], "queue:q")])
def test_a_letter_can_be_traced_from_its_message_and_back(
    settings: oms.KeyValue,
    store: kmq.Store,
    topics: list[str],
    source: str,
    monkeypatch: pytest.MonkeyPatch,
):
    store.create_topic("t")
    store.create_queue("q", topics=topics)
    with store.producer() as producer:
        (producer.send("t", b"x") if topics else producer.send_to_queue("q", b"x")).result()
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", topics, _takes_good_ones_only)
        _letter(store, "q.dlq")
    why = "ValueError: b'x'"
    origin = {"from_queue": "q", "from_partition": 0, "from_offset": 0}
    for _ in range(2):
        (gone,) = (s.facts for s in store.trace(source, 0, 0) if s.event == "dead-lettered")
        assert gone == {"queue": "q", "to_queue": "q.dlq", "to_offset": 0, "reason": why}
        sent = dict(store.trace("queue:q.dlq", 0, 0)[0].facts)
        assert sent.pop("from_topic", "queue:q") == source
        assert sent == {**origin, "from_count": 16, "from_reason": why}
        monkeypatch.setattr(store.log, "commits", lambda _start: ())  # all collected


def test_later_messages_wait_for_a_letter_that_is_not_stored_yet(
    settings: oms.KeyValue, producer: oms.Producer, store: kmq.Store
):
    store.create_queue("q.dlq", capacity=1)
    done = threading.Event()

    def listen(message: oms.BytesMessage, context: object) -> None:
        _takes_good_ones_only(message, context)
        done.set()

    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", listen)  # type: ignore[arg-type]
        for body in (b"bad 1", b"bad 2", b"good"):
            producer.send(producer.create_bytes_message_to_queue("q", body))
        producer.flush()
        first = _letter(store, "q.dlq")
        assert (first.value, done.is_set()) == (b"bad 1", False)
        first.ack()
        assert done.wait(60)
        second = _letter(store, "q.dlq")
        assert second.value == b"bad 2"


@pytest.mark.parametrize(
    ("queue", "body"), [("q" * 244, b"x"), ("q", bytes(1_048_576))], ids=["long name", "large"]
)
def test_every_message_that_is_stored_can_be_a_letter(
    settings: oms.KeyValue, producer: oms.Producer, store: kmq.Store, queue: str, body: bytes
):
    producer.send(producer.create_bytes_message_to_queue(queue, body))
    producer.flush()
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue(queue, _takes_good_ones_only)  # type: ignore[arg-type]
        letter = _letter(store, f"{queue}.dlq")
    assert letter.value == body


def test_a_queue_of_typed_topics_is_refused_by_their_name(
    settings: oms.KeyValue, producer: oms.Producer, store: kmq.Store
):
    store.create_topic("typed", schema=pa.schema([("a", pa.int64())]))
    with oms.PullConsumer(settings) as consumer:
        with pytest.raises(kmq.InvalidRequestError, match="topic typed has a schema"):
            consumer.attach_queue("q", ["typed"])
        assert _names(store) == []
        store.create_queue("q", topics=["typed"])
        with pytest.raises(kmq.InvalidRequestError, match="topic typed has a schema"):
            consumer.attach_queue("q")
        store.unbind_queue("q", ["typed"])
        consumer.attach_queue("q")
        producer.send(producer.create_bytes_message_to_queue("q", b"x"))
        found = consumer.poll()
    assert found is not None
    assert found.get_body() == b"x"


def test_a_topic_that_is_made_again_with_a_schema_leaves_the_other_topics_readable(
    settings: oms.KeyValue,
    producer: oms.Producer,
    store: kmq.Store,
    caplog: pytest.LogCaptureFixture,
):
    def send(topic: str, body: bytes) -> None:
        producer.send(producer.create_bytes_message_to_topic(topic, body)).message_id()

    def found() -> list[bytes | None]:
        return [message.get_body() for message in iter(consumer.poll, None)]

    with oms.PullConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t", "u"])
        send("t", b"1")
        assert found() == [b"1"]
        store.delete_topic("t")
        store.create_topic("t", schema=pa.schema([("a", pa.int64())]))
        with store.producer() as typed:
            typed.send("t", {"a": 1}).result()
        send("u", b"2")
        assert found() == [b"2"]
        assert "topic t has a schema" in caplog.text
        send("u", b"3")
        assert found() == [b"3"]
        store.delete_topic("t")
        send("t", b"4")
        assert found() == [b"4"]


def test_an_outage_does_not_end_a_listener(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    got: SimpleQueue[bytes | None] = SimpleQueue()
    failures, poll = [kmq.UnavailableError("the disk is full")], oms.PullConsumer.poll

    def unsteady(consumer: oms.PullConsumer, properties: oms.KeyValue) -> oms.BytesMessage | None:
        if failures:
            raise failures.pop()
        return poll(consumer, properties)

    monkeypatch.setattr(oms.PullConsumer, "poll", unsteady)
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", [], lambda message, _: got.put(message.get_body()))
        producer.send(producer.create_bytes_message_to_queue("q", b"x"))
        assert got.get(timeout=60) == b"x"


_PROGRAM = """
import sys, threading
from kmq_spark import openmessaging as oms
begun = threading.Event()
def listen(message, context):
    begun.set()
    consumer._ended.wait()  # until the program ends
consumer = oms.PushConsumer(oms.KeyValue().put("STORE_PATH", sys.argv[1]))
consumer.attach_queue("q", listen)
begun.wait()
"""


def test_a_program_that_ends_waits_for_its_listener_and_the_message_is_done(
    settings: oms.KeyValue, producer: oms.Producer, tmp_path: Path
):
    for body in (b"0", b"1", b"2"):
        producer.send(producer.create_bytes_message_to_queue("q", body))
    producer.flush()
    assert exit_codes([start_python(_PROGRAM, str(tmp_path / "store"))]) == [0]
    with oms.PullConsumer(settings) as consumer:
        consumer.attach_queue("q")
        found = consumer.poll()
    assert found is not None
    assert found.get_body() == b"1"


def test_a_letter_is_of_the_message_whatever_its_listener_did_with_it(
    settings: oms.KeyValue, producer: oms.Producer, store: kmq.Store
):
    def listen(message: oms.BytesMessage, _: object) -> None:
        message.put_headers("MessageId", "seen")
        raise ValueError

    producer.send(producer.create_bytes_message_to_topic("t", b"x"))
    producer.flush()
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], listen)
        letter = _letter(store, "q.dlq")
    assert (letter.value, letter.properties["dead_letter_offset"]) == (b"x", 0)


def test_a_queue_that_is_refused_leaves_no_store_open(settings: oms.KeyValue):
    before = set(access._shared)  # what others of this process left open
    with oms.PushConsumer(settings) as consumer:
        for _ in range(3):
            with pytest.raises(kmq.InvalidRequestError):
                consumer.attach_queue("no/name", _takes_good_ones_only)  # type: ignore[arg-type]
        assert [access._shared[path].users for path in set(access._shared) - before] == [1]
    assert set(access._shared) == before
