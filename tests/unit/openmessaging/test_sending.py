"""Sending: what a result says, what flush and a batch promise, where messages go."""

from __future__ import annotations

import socket

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging import access
from tests.unit.openmessaging.received import all_of, attached, bodies, end_all


def test_the_result_of_a_send_has_the_id_under_which_the_message_is_received(
    settings: oms.KeyValue, producer: oms.Producer
):
    message = producer.create_bytes_message_to_topic("t", b"x").put_headers("MessageId", "mine")
    sent = producer.send(message).message_id()
    later = producer.send_async(producer.create_bytes_message_to_queue("q", b"y")).get(10)
    received = {m.get_body(): m.headers() for m in all_of(attached(settings, topics=["t"]))}
    assert (
        sent == received[b"x"].get_string("MessageId") == message.headers().get_string("MessageId")
    )
    assert later.message_id() == received[b"y"].get_string("MessageId")


def test_what_is_set_when_a_message_is_stored_is_in_its_headers(
    settings: oms.KeyValue, producer: oms.Producer
):
    message = producer.create_bytes_message_to_topic("t", b"x").put_headers("StoreTimestamp", 1)
    producer.send(message)
    (received,) = all_of(attached(settings, topics=["t"]))
    for headers in (message.headers(), received.headers()):
        assert headers.get_long("StoreTimestamp") > 1_700_000_000_000
        assert headers.get_string("StoreHost") == settings.get_string("STORE_PATH")
        assert headers.get_string("Topic") == "t"
    assert received.headers().get_long("BornTimestamp") > 1_700_000_000_000
    assert received.headers().get_string("BornHost")


def test_in_memory_messages_are_born_on_this_host_too():
    settings = oms.KeyValue().put("STORE_PATH", "memory://born")
    with oms.Producer(settings) as producer:
        producer.send(producer.create_bytes_message_to_topic("t", b"x"))
        (received,) = all_of(attached(settings, topics=["t"]))
    end_all()
    assert received.headers().get_string("BornHost") == socket.gethostname()


def test_what_a_message_says_of_its_birth_is_kept(settings: oms.KeyValue, producer: oms.Producer):
    message = producer.create_bytes_message_to_topic("t", b"x")
    producer.send(message.put_headers("BornTimestamp", 5).put_headers("BornHost", "h"))
    (received,) = all_of(attached(settings, topics=["t"]))
    assert received.headers().get_long("BornTimestamp") == 5
    assert received.headers().get_string("BornHost") == "h"


def test_a_message_that_is_changed_after_it_was_sent_is_stored_as_it_was(
    settings: oms.KeyValue, producer: oms.Producer
):
    message = producer.create_bytes_message_to_topic("t", b"x").put_properties("n", 1)
    producer.send(message)
    producer.send_oneway(message.put_properties("n", 2))
    received = all_of(attached(settings, topics=["t"]))
    assert [each.properties().get_int("n") for each in received] == [1, 2]


def test_flush_tells_of_a_message_that_could_not_be_stored(
    settings: oms.KeyValue, producer: oms.Producer
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.create_topic("t", capacity=1)
        producer.send(producer.create_bytes_message_to_topic("t", b"1"))
        producer.flush()
        producer.send_oneway(producer.create_bytes_message_to_topic("t", b"2"))
        with pytest.raises(kmq.QueueFullError):
            producer.flush()
        producer.flush()
        promise = producer.send_async(producer.create_bytes_message_to_topic("t", b"3"))
        assert bodies(attached(settings, topics=["t"])) == [b"1"]  # and takes no error away
        with pytest.raises(kmq.QueueFullError):
            promise.result(10)
        with pytest.raises(kmq.QueueFullError):
            producer.flush()


def test_a_message_that_was_sent_cannot_be_cancelled(producer: oms.Producer):
    promise = producer.send_async(producer.create_bytes_message_to_topic("t", b"1"))
    assert not promise.cancel()
    assert promise.get(10).message_id() == "t:0:0"


def test_who_waits_for_a_future_waits_for_no_other_messages(
    settings: oms.KeyValue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(access, "_LINGER", 3600.0)
    with oms.Producer(settings) as producer:
        promise = producer.send_async(producer.create_bytes_message_to_topic("t", b"1"))
        assert promise.get(30).message_id() == "t:0:0"
        assert promise.is_done()


def test_flush_tells_of_its_own_producer_only(settings: oms.KeyValue, producer: oms.Producer):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.create_topic("t", capacity=1)
    other = oms.Producer(settings)
    producer.send(producer.create_bytes_message_to_topic("t", b"1"))
    producer.flush()
    producer.send(producer.create_bytes_message_to_topic("u", b"1"))
    other.send(other.create_bytes_message_to_topic("t", b"2"))
    producer.flush()
    with pytest.raises(kmq.QueueFullError):
        other.shutdown()


def test_a_batch_is_stored_whole_behind_what_was_sent_or_forgotten(
    settings: oms.KeyValue, producer: oms.Producer
):
    producer.send(producer.create_bytes_message_to_topic("t", b"before"))
    batch = producer.create_batch_to_partition("t")
    for body in (b"1", b"2"):
        batch.send(producer.create_bytes_message_to_topic("t", body))
    batch.rollback()
    for body in (b"3", b"4"):
        batch.send(producer.create_bytes_message_to_topic("t", body))
    consumer = attached(settings, topics=["t"])
    assert bodies(consumer) == [b"before"]
    batch.commit()
    producer.send(producer.create_bytes_message_to_topic("t", b"after"))
    assert bodies(consumer) == [b"3", b"4", b"after"]
    with pytest.raises(kmq.InvalidRequestError, match="the batch is for t"):
        batch.send(producer.create_bytes_message_to_topic("other", b"x"))


def test_messages_of_one_producer_keep_their_order_in_a_topic_of_many_partitions(
    settings: oms.KeyValue, producer: oms.Producer
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.create_topic("t", partitions=4)
        for number in range(300):
            producer.send(producer.create_bytes_message_to_topic("t", b"%d" % number))
            if number % 100 == 99:
                producer.flush()
        assert bodies(attached(settings, topics=["t"])) == [b"%d" % n for n in range(300)]


def _placed(producer: oms.Producer, header: str, value: int | str) -> int:
    """The partition of a message with this header."""
    message = producer.create_bytes_message_to_topic("t", b"x").put_headers(header, value)
    return int(producer.send(message).message_id().split(":")[1])


def test_sharding_headers_choose_the_partition(settings: oms.KeyValue, producer: oms.Producer):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.create_topic("t", partitions=4)
        with store.producer() as native:
            alice = native.send("t", b"x", key="alice").result(10).partition
    assert _placed(producer, "ShardingPartition", 6) == 2
    assert len({_placed(producer, "ShardingPartition", "north") for _ in range(3)}) == 1
    assert _placed(producer, "ShardingKey", "alice") == alice


def _partition(producer: oms.Producer, **headers: str) -> int:
    message = producer.create_bytes_message_to_topic("t", b"x")
    for name, value in headers.items():
        message.put_headers(name, value)
    return int(producer.send(message).message_id().split(":")[1])


def test_a_producer_uses_partitions_that_were_added_and_keeps_what_has_no_key_in_order(
    settings: oms.KeyValue, producer: oms.Producer
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as other:
        store.create_topic("t", partitions=2)
        before = _partition(producer)
        store.add_partitions("t", 8)
        assert {_partition(producer) for _ in range(3)} == {before}
        for key in map(str, range(9)):
            where = other.send("t", b"x", key=key).result().partition
            assert _partition(producer, ShardingKey=key) == where


def test_a_producer_sends_to_a_topic_that_was_deleted_and_made_again(
    settings: oms.KeyValue, producer: oms.Producer
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.create_topic("t", partitions=64)
        _partition(producer, ShardingPartition="x")
        store.delete_topic("t")
        with pytest.raises(kmq.NotFoundError):
            _partition(producer)
        assert _partition(producer) == 0  # a new one, of one partition
        with pytest.raises(kmq.NotFoundError):
            producer.flush()


def test_a_search_key_is_the_key_of_the_record(settings: oms.KeyValue, producer: oms.Producer):
    message = producer.create_bytes_message_to_topic("t", b"x").put_headers("SearchKey", "order-7")
    producer.send(message)
    producer.flush()
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        assert store.read("t", columns=["key"]).read_all()["key"].to_pylist() == [b"order-7"]


def test_a_producer_that_was_shut_down_takes_nothing_and_has_stored_everything(
    settings: oms.KeyValue,
):
    producer = oms.Producer(settings)
    message = producer.create_bytes_message_to_topic("t", b"x")
    producer.send(message)
    producer.shutdown()
    producer.shutdown()
    with pytest.raises(kmq.ClosedError):
        producer.send(message)
    with pytest.raises(kmq.ClosedError):
        producer.flush()
    assert bodies(attached(settings, topics=["t"])) == [b"x"]


def test_what_is_sent_is_stored_soon_without_flush(producer: oms.Producer, settings: oms.KeyValue):
    producer.send(producer.create_bytes_message_to_topic("t", b"x"))
    with (
        kmq.open(str(settings.get_string("STORE_PATH"))) as store,
        store.consumer(topics=["t"]) as consumer,
    ):
        assert consumer.poll(timeout=30).value == b"x"  # type: ignore[union-attr]


def test_a_batch_for_a_partition_is_stored_there_under_the_keys_of_its_messages(
    settings: oms.KeyValue, producer: oms.Producer
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.create_topic("t", partitions=3)
        batch = producer.create_batch_to_partition("t:2")
        for body, keys in ((b"1", {"SearchKey": "s", "ShardingKey": "k"}), (b"2", {})):
            message = producer.create_bytes_message_to_topic("t", body)
            for name, key in keys.items():
                message.put_headers(name, key)
            batch.send(message)
        batch.commit()
        rows = store.read("t", columns=["partition", "key", "value"]).read_all().to_pylist()
    assert rows == [
        {"partition": 2, "key": b"s", "value": b"1"},
        {"partition": 2, "key": None, "value": b"2"},
    ]


def test_a_batch_is_stored_behind_what_lingers(settings: oms.KeyValue, producer: oms.Producer):
    producer._producer._pending._linger = 60.0
    producer.send(producer.create_bytes_message_to_topic("t", b"before"))
    batch = producer.create_batch_to_partition("t")
    batch.send(producer.create_bytes_message_to_topic("t", b"batch"))
    batch.commit()
    assert bodies(attached(settings, topics=["t"])) == [b"before", b"batch"]
