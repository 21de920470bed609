"""Which of the messages that are there comes first, and which can be acknowledged."""

from __future__ import annotations

import time

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from tests.unit.openmessaging.received import attached, bodies


def test_of_messages_whose_time_came_the_more_important_come_first_too(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    now = time.time_ns() // 1_000_000

    def send(body: bytes, **headers: int) -> None:
        message = producer.create_bytes_message_to_topic("t", body)
        for name, value in headers.items():
            message.put_headers(name, value)
        producer.send(message)

    send(b"p9", Priority=9, StartTime=now + 60_000)
    send(b"p1", Priority=1, StartTime=now + 50_000)
    consumer = attached(settings, "q", ["t"])
    assert bodies(consumer) == []
    send(b"p2", Priority=2)
    send(b"usual")
    producer.flush()
    monkeypatch.setattr(consumer, "_now", lambda: now + 70_000)
    assert bodies(consumer) == [b"p9", b"usual", b"p2", b"p1"]


def test_only_messages_that_there_are_can_be_acknowledged(
    settings: oms.KeyValue, producer: oms.Producer
):
    consumer = attached(settings, "q", ["t"])
    sent = producer.send(producer.create_bytes_message_to_topic("t", b"x")).message_id()
    consumer.ack(sent)  # though it was not received
    for wrong in ("t:0:999999", "t:0:1", "t:1:0", "other:0:0", "x"):
        with pytest.raises(kmq.InvalidRequestError, match="no message of queue q has id"):
            consumer.ack(wrong)
    assert bodies(consumer) == [b"x"]
    consumer.ack(sent)
