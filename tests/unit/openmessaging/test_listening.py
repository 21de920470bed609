"""Push consumers: listeners get every message until they succeed; suspend and resume."""

from __future__ import annotations

import asyncio
import threading
from queue import Empty, SimpleQueue

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging import push
from tests.unit.openmessaging.received import attached, bodies


def _send(producer: oms.Producer, *found: bytes) -> None:
    for body in found:
        producer.send(producer.create_bytes_message_to_topic("t", body))
    producer.flush()


def test_a_listener_gets_messages_in_order_and_what_it_took_is_done(
    settings: oms.KeyValue, producer: oms.Producer
):
    got: SimpleQueue[tuple[bytes | None, int]] = SimpleQueue()

    def listen(message: oms.BytesMessage, context: oms.ReceivedMessageContext) -> None:
        got.put((message.get_body(), context.properties().get_int("DeliveryCount")))

    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], listen)
        _send(producer, b"1", b"2")
        assert [got.get(timeout=30) for _ in range(2)] == [(b"1", 1), (b"2", 1)]
    assert bodies(attached(settings, "q")) == []


def test_a_listener_may_be_an_object_and_stand_in_the_place_of_topics(
    settings: oms.KeyValue, producer: oms.Producer
):
    got: SimpleQueue[bytes | None] = SimpleQueue()

    class Listener:
        def onMessage(self, message: oms.BytesMessage, context: object) -> None:
            got.put(message.get_body())

    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", Listener())  # type: ignore[arg-type]
        producer.send(producer.create_bytes_message_to_queue("q", b"x"))
        assert got.get(timeout=30) == b"x"
        with pytest.raises(kmq.InvalidRequestError, match="has a listener already"):
            consumer.attach_queue("q", Listener())  # type: ignore[arg-type]
        with pytest.raises(kmq.InvalidRequestError, match="can't be called"):
            consumer.attach_queue("r", ["t"])
        with pytest.raises(kmq.InvalidRequestError, match="nobody would await"):
            consumer.attach_queue("r", asyncio.sleep)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, asyncio.CancelledError])
def test_a_listener_that_fails_gets_the_message_again_before_later_ones(
    settings: oms.KeyValue, producer: oms.Producer, error: type[BaseException]
):
    got: SimpleQueue[bytes | None] = SimpleQueue()

    def listen(message: oms.BytesMessage, context: oms.ReceivedMessageContext) -> None:
        got.put(message.get_body())
        if context.properties().get_int("DeliveryCount") == 1:
            raise error("not now")

    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], listen)
        _send(producer, b"1", b"2")
        assert [got.get(timeout=30) for _ in range(4)] == [b"1", b"1", b"2", b"2"]


def test_a_message_that_always_fails_goes_to_the_queue_of_dead_letters(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(push, "_ATTEMPTS", 2)
    done = threading.Event()

    def listen(message: oms.BytesMessage, context: oms.ReceivedMessageContext) -> None:
        if message.get_body() == b"bad":
            raise RuntimeError("never")
        done.set()

    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], listen)
        bad = producer.create_bytes_message_to_topic("t", b"bad")
        producer.send(bad.put_properties("p", 5).put_headers("h", "x"))
        _send(producer, b"good")
        assert done.wait(30)
    letter = attached(settings, "q.dlq").poll()
    assert letter is not None
    assert letter.get_body() == b"bad"
    assert letter.properties().get_int("p") == 5
    assert letter.headers().get_string("h") == "x"
    assert bodies(attached(settings, "q")) == []


def test_nothing_is_handed_out_while_it_is_suspended(
    settings: oms.KeyValue, producer: oms.Producer
):
    got: SimpleQueue[bytes | None] = SimpleQueue()
    with oms.PushConsumer(settings) as consumer:
        with pytest.raises(kmq.IllegalStateError, match="not suspended"):
            consumer.resume()
        consumer.suspend()
        assert consumer.is_suspended()
        consumer.attach_queue("q", ["t"], lambda message, _: got.put(message.get_body()))
        _send(producer, b"1")
        with pytest.raises(Empty):
            got.get(timeout=0.05)
        consumer.resume()
        assert not consumer.is_suspended()
        assert got.get(timeout=30) == b"1"


def test_a_message_that_its_listener_acknowledged_does_not_come_again_though_it_fails(
    settings: oms.KeyValue, producer: oms.Producer
):
    got: SimpleQueue[bytes | None] = SimpleQueue()

    def listen(message: oms.BytesMessage, context: oms.ReceivedMessageContext) -> None:
        got.put(message.get_body())
        context.ack()
        raise RuntimeError("after that")

    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], listen)
        _send(producer, b"1", b"2")
        assert [got.get(timeout=30) for _ in range(2)] == [b"1", b"2"]
    assert got.empty()


def test_a_listener_that_failed_is_not_called_again_while_it_is_suspended(
    settings: oms.KeyValue, producer: oms.Producer
):
    got: SimpleQueue[int] = SimpleQueue()
    with oms.PushConsumer(settings) as consumer:

        def listen(message: oms.BytesMessage, context: oms.ReceivedMessageContext) -> None:
            count = context.properties().get_int("DeliveryCount")
            if count == 1:
                consumer.suspend()
            got.put(count)
            raise RuntimeError("not now")

        consumer.attach_queue("q", ["t"], listen)
        _send(producer, b"1")
        assert got.get(timeout=30) == 1
        with pytest.raises(Empty):
            got.get(timeout=3 * push._PAUSE)
        consumer.resume()
        assert got.get(timeout=30) == 2


def test_a_message_whose_listener_failed_is_the_next_consumers_after_shutdown(
    settings: oms.KeyValue, producer: oms.Producer
):
    called = threading.Event()

    def listen(message: oms.BytesMessage, context: oms.ReceivedMessageContext) -> None:
        called.set()
        raise RuntimeError("not now")

    _send(producer, b"1", b"2")
    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], listen)
        assert called.wait(30)
    assert bodies(attached(settings, "q")) == [b"1", b"2"]


def test_a_message_whose_time_ends_between_two_attempts_comes_to_nobody_any_more(
    settings: oms.KeyValue, producer: oms.Producer
):
    got: SimpleQueue[bytes | None] = SimpleQueue()

    def listen(message: oms.BytesMessage, context: oms.ReceivedMessageContext) -> None:
        got.put(message.get_body())
        if message.get_body() == b"short":
            message.put_headers("StopTime", 1)  # as if so much time had passed
            raise RuntimeError("not now")

    with oms.PushConsumer(settings) as consumer:
        consumer.attach_queue("q", ["t"], listen)
        _send(producer, b"short", b"long")
        assert [got.get(timeout=30) for _ in range(2)] == [b"short", b"long"]
    assert bodies(attached(settings, "q")) == bodies(attached(settings, "q.dlq")) == []
