"""Queues that are bound again, as many programs do when they begin, and read by messages then."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from tests.unit.openmessaging.received import attached, bodies


def test_who_comes_after_a_topic_was_bound_again_reads_it_from_where_it_was_bound_first(
    settings: oms.KeyValue,
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        store.create_topic("t")
        store.create_queue("q")
        sender.send("t", b"before").result()
        store.bind_queue("q", ["t"], start="latest")
        for number in range(4):
            sender.send("t", b"%d" % number, properties={"n": number}).result()
        queue = store.queue("q", prefetch=1)
        queue.ack(queue.receive(9))  # and has nothing to look at any more
        store.bind_queue("q", ["t"])
        assert bodies(attached(settings)) == [b"0", b"1", b"2", b"3"]


def test_a_consumer_reads_what_its_queue_is_bound_to_meanwhile_and_nothing_that_is_unbound(
    settings: oms.KeyValue, caplog: pytest.LogCaptureFixture
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        store.create_topic("u")
        store.create_topic("typed", schema=pa.schema([("a", pa.int64())]))
        consumer = attached(settings, topics=["t"])
        sender.send("t", b"1").result()
        sender.send("u", b"before").result()
        assert bodies(consumer) == [b"1"]
        store.bind_queue("q", ["u", "typed"], start="latest")
        sender.send("u", b"2").result()
        assert bodies(consumer) == [b"2"]
        assert "topic typed has a schema" in caplog.text
        store.unbind_queue("q", ["t"])
        sender.send("t", b"3").result()
        sender.send_to_queue("q", b"4").result()
        assert bodies(consumer) == [b"4"]
        store.bind_queue("q", ["t"])
        assert bodies(consumer) == [b"3"]


def test_a_consumer_that_waits_reads_what_its_queue_is_bound_to_meanwhile(settings: oms.KeyValue):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        store.create_topic("u")
        sender.send("u", b"1").result()
        consumer = attached(settings)
        binding = threading.Timer(0.1, lambda: store.bind_queue("q", ["u"]))
        binding.start()
        found = consumer.poll(oms.KeyValue().put("OPERATION_TIMEOUT", 20_000))
        binding.join()
        assert found is not None
        assert found.get_body() == b"1"


def test_a_consumer_that_waits_gets_nothing_that_was_sent_after_its_topic_was_unbound(
    settings: oms.KeyValue,
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        consumer = attached(settings, topics=["t"])

        def unbind_and_send() -> None:
            store.unbind_queue("q", ["t"])
            sender.send("t", b"1").result()
            sender.send_to_queue("q", b"2").result()

        unbinding = threading.Timer(0.1, unbind_and_send)
        unbinding.start()
        found = consumer.poll(oms.KeyValue().put("OPERATION_TIMEOUT", 20_000))
        unbinding.join()
        assert found is not None
        assert found.get_body() == b"2"
        store.bind_queue("q", ["t"])
        assert bodies(consumer) == [b"1"]


def test_a_second_attach_goes_on_with_a_topic_that_was_deleted_and_made_again(
    settings: oms.KeyValue,
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        consumer = attached(settings, topics=["t"])
        store.delete_topic("t")
        store.create_topic("t")
        sender.send("t", b"1").result()
        assert bodies(consumer) == [b"1"]
        consumer.attach_queue("q", ["u"])
        for topic in ("t", "u"):
            sender.send(topic, b"2").result()
        assert bodies(consumer) == [b"2", b"2"]
