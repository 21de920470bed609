"""Kmq's version 2 in one process: arrays, indices, named consumers, and what is refused.

Finds: messages that are lost or come twice, a place that is reset, a consumer that sleeps on, and
bodies that come back as something else.
"""

from __future__ import annotations

import os
import signal
import threading
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.v2 import Kmq, KmqBroker, KmqConsumer, KmqMessage, KmqProducer
from tests.unit.v2.arrays import TOPIC, bodies, in_transactions, run_in_threads, said

# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_that_exists_is_kept_with_its_messages_and_capacity(
    broker: KmqBroker, producer: KmqProducer, store: kmq.Store, recwarn: pytest.WarningsRecorder
):
    producer.send(TOPIC, KmqMessage(None, b"1"))
    assert broker.create_topic(TOPIC).current_write_index == 1
    assert store.describe_topic(TOPIC).settings.capacity == 5
    assert not recwarn.list


def test_a_topic_takes_10000_messages_unless_told_otherwise(broker: KmqBroker, store: kmq.Store):
    broker.create_topic("t")
    assert store.describe_topic("t").settings.capacity == 10_000


@pytest.mark.parametrize("store", [None, "data/shop"])
def test_a_broker_is_one_of_an_open_store(store: Any):
    with pytest.raises(kmq.InvalidRequestError, match="needs an open store"):
        KmqBroker(store)


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, None, "5"])
@pytest.mark.parametrize("topic", ["new", TOPIC])
def test_a_capacity_that_is_no_number_from_1_is_refused(
    broker: KmqBroker, topic: str, capacity: Any
):
    with pytest.raises(kmq.InvalidRequestError):
        broker.create_topic(topic, capacity)
    assert broker.find_kmq("new") is None


@pytest.mark.parametrize("topic", [None, 5, [], {}, b"t", "", "a/b"])
def test_a_name_that_is_none_is_refused_and_found_nowhere(broker: KmqBroker, topic: Any):
    assert broker.find_kmq(topic) is None
    with pytest.raises(kmq.InvalidRequestError):
        broker.create_topic(topic)


def test_a_topic_of_several_partitions_is_no_array(broker: KmqBroker, store: kmq.Store):
    store.create_topic("wide", partitions=2)
    for attempt in (broker.find_kmq, broker.create_topic):
        with pytest.raises(kmq.InvalidRequestError, match="wide has 2 partitions"):
            attempt("wide")


def test_what_is_done_with_an_unknown_topic_is_an_error_with_the_text_of_the_original(
    broker: KmqBroker, producer: KmqProducer
):
    assert broker.find_kmq("no") is None
    message = KmqMessage(None, b"1")
    for call in (
        lambda: producer.send("no", message),
        lambda: producer.send_without_lock("no", message),
        lambda: producer.begin_transaction("no"),
        lambda: producer.commit_transaction("no"),
        lambda: producer.abort_transaction("no"),
        lambda: broker.create_consumer().subscribe("no"),
    ):
        with pytest.raises(kmq.NotFoundError) as told:
            call()
        assert str(told.value) == "Topic[no] doesn't exist."


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\x00", "", "läuft", None, True, 0, -(2**70), 1.5, -0.0, [], [1, [None]], {"a": {}}],
    ids=repr,
)
def test_a_body_comes_back_with_its_type(array: Kmq, producer: KmqProducer, body: Any):
    producer.send(TOPIC, KmqMessage({"n": 1, "of": [None, "x"]}, body))
    message = array.poll("c")
    assert message == KmqMessage({"n": 1, "of": [None, "x"]}, body)
    assert repr(message.body) == repr(body)


@pytest.mark.parametrize("headers", [None, {}, {"": ""}])
def test_headers_come_back_and_no_headers_stay_none(
    array: Kmq, producer: KmqProducer, headers: dict[str, Any] | None
):
    producer.send(TOPIC, KmqMessage(headers, b"1"))
    message = array.poll("c")
    assert message is not None
    assert message.headers == headers


class _Colour(StrEnum):
    RED = "red"


_CIRCLE: list[Any] = []
_CIRCLE.append(_CIRCLE)


@pytest.mark.parametrize(
    "message",
    [
        None,
        b"1",
        *said((1, 2), {1: 2}, {1}, ..., float("nan"), [float("inf")], bytearray(b"1"), _CIRCLE),
        *said(_Colour.RED, [b"1"], "\ud800", 1j),
        KmqMessage({"a": b"1"}, b"1"),
        KmqMessage([("a", "b")], b"1"),  # type: ignore[arg-type]
        KmqMessage({1: "b"}, b"1"),  # type: ignore[dict-item]
    ],
    ids=repr,
)
def test_what_would_not_come_back_is_refused_and_nothing_is_stored(
    array: Kmq, producer: KmqProducer, message: Any
):
    with pytest.raises(kmq.InvalidRequestError):
        producer.send(TOPIC, message)
    producer.auto_commit = False
    producer.begin_transaction(TOPIC)
    with pytest.raises(kmq.InvalidRequestError):
        producer.send_without_lock(TOPIC, message)
    producer.commit_transaction(TOPIC)
    assert array.current_write_index == 0


def test_a_body_that_is_too_deep_for_json_is_refused(producer: KmqProducer):
    body: list[Any] = []
    for _ in range(100_000):
        body = [body]
    with pytest.raises(kmq.InvalidRequestError, match="this list is not"):
        producer.send(TOPIC, KmqMessage(None, body))


def test_records_of_other_producers_are_messages_without_headers(array: Kmq, store: kmq.Store):
    with store.producer() as other:
        other.send(TOPIC, b"1", b"key", headers={"a": b"b"})
        other.send(TOPIC, None, b"key")
    assert [array.poll("c"), array.poll("c")] == said(b"1", None)


# --- the array ------------------------------------------------------------------------------------


def test_the_log_of_a_queue_is_no_array(broker: KmqBroker, store: kmq.Store):
    store.create_queue("q")
    assert broker.find_kmq("queue:q") is None


def test_the_indices_count_what_is_stored_and_differ_by_one(array: Kmq, producer: KmqProducer):
    assert (array.current_write_index, array.current_can_read_max_index) == (0, -1)
    for number in range(3):
        assert producer.send(TOPIC, KmqMessage(None, number)) is True
        assert array.current_write_index == number + 1
        assert array.current_can_read_max_index == number
    assert bodies(array) == [0, 1, 2]
    assert array.current_write_index == 3


def test_a_full_topic_takes_nothing_more_and_says_false(array: Kmq, producer: KmqProducer):
    taken = [producer.send(TOPIC, KmqMessage(None, number)) for number in range(7)]
    assert taken == [True] * 5 + [False] * 2
    assert bodies(array) == [0, 1, 2, 3, 4]
    assert producer.send(TOPIC, KmqMessage(None, 7)) is False  # reading makes no room


def test_a_topic_made_without_a_capacity_is_never_full(broker: KmqBroker, store: kmq.Store):
    store.create_topic("t")
    producer = in_transactions(broker)
    producer.begin_transaction("t")
    assert all(producer.send_without_lock("t", message) for message in said(*range(9)))
    producer.commit_transaction("t")


def test_many_threads_lose_and_overwrite_no_message(broker: KmqBroker):
    array, producer = broker.create_topic("many"), broker.create_producer()
    array.register_consumer("c")

    def send(thread: int) -> None:
        for number in range(20):
            assert producer.send("many", KmqMessage(None, [thread, number]))

    run_in_threads(send, 4)
    found = bodies(array)
    for thread in range(4):
        assert [n for t, n in found if t == thread] == list(range(20))


# --- consumers ------------------------------------------------------------------------------------


def test_every_named_consumer_gets_every_message_in_order(array: Kmq, producer: KmqProducer):
    array.register_consumer("d")
    for message in said(1, 2, 3):
        producer.send(TOPIC, message)
    assert bodies(array, "c") == bodies(array, "d") == [1, 2, 3]


def test_an_id_may_be_given_by_its_name(array: Kmq, producer: KmqProducer):
    array.register_consumer(id="audit")
    producer.send(topic=TOPIC, message=KmqMessage(headers=None, body=b"1"))
    assert array.poll(id="audit", timeout_ms=100) == KmqMessage(None, b"1")


def test_registering_again_keeps_the_place(array: Kmq, producer: KmqProducer):
    for message in said(1, 2):
        producer.send(TOPIC, message)
    array.poll("c")
    array.register_consumer("c")
    assert bodies(array) == [2]


def test_a_consumer_has_a_place_in_each_topic(broker: KmqBroker, array: Kmq, producer: KmqProducer):
    other = broker.create_topic("other")
    producer.send(TOPIC, KmqMessage(None, 1))
    producer.send("other", KmqMessage(None, 2))
    assert bodies(array) == [1]
    assert other.poll("c") is None
    other.register_consumer("c")
    assert (bodies(other), bodies(array)) == ([2], [])


def test_an_unknown_consumer_gets_none_at_once(array: Kmq, producer: KmqProducer):
    producer.send(TOPIC, KmqMessage(None, 1))
    assert array.poll("nobody") is None
    assert array.poll("nobody", timeout_ms=10**9) is None
    assert array.poll(["nobody"]) is None  # type: ignore[arg-type]


def test_a_consumer_that_subscribes_late_sees_all_under_an_id_of_its_own(
    broker: KmqBroker, producer: KmqProducer
):
    for message in said(1, 2):
        producer.send(TOPIC, message)
    first, second = broker.create_consumer(), broker.create_consumer()
    for consumer in (first, second):
        consumer.subscribe(TOPIC)
        assert [consumer.poll(), consumer.poll(0), consumer.poll(1)] == [*said(1, 2), None]
    assert first.consumer_id != second.consumer_id


def test_a_poll_waits_for_a_message_that_comes(array: Kmq, producer: KmqProducer):
    found: list[KmqMessage | None] = []
    waiting = threading.Thread(target=lambda: found.append(array.poll("c", 60_000)))
    waiting.start()
    producer.send(TOPIC, KmqMessage(None, 1))
    waiting.join(60)
    assert found == said(1)


def test_an_interrupted_poll_says_so_and_takes_nothing(
    array: Kmq, producer: KmqProducer, store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store.log, "wait", lambda *_: signal.raise_signal(signal.SIGINT))
        array.poll("c", 60_000)
    for message in said(1, 2):
        producer.send(TOPIC, message)
    assert bodies(array) == [1, 2]


def test_threads_that_share_an_id_get_each_message_once(broker: KmqBroker):
    array, producer = broker.create_topic("many"), in_transactions(broker)
    array.register_consumer("c")
    producer.begin_transaction("many")
    for number in range(200):
        producer.send_without_lock("many", KmqMessage(None, number))
    producer.commit_transaction("many")
    found: list[list[Any]] = [[], [], [], []]
    run_in_threads(lambda thread: found[thread].extend(bodies(array)), 4)
    assert sorted(chain(*found)) == list(range(200))
    assert all(each == sorted(each) for each in found)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1", True])
def test_a_timeout_that_is_none_is_refused(array: Kmq, timeout: Any):
    with pytest.raises(kmq.InvalidRequestError, match="milliseconds"):
        array.poll("c", timeout)


def test_a_group_with_members_is_no_consumer(array: Kmq, store: kmq.Store):
    with store.consumer("members", topics=[TOPIC]) as member:
        assert member.assignment()
        with pytest.raises(kmq.IllegalStateError, match="live member"):
            array.register_consumer("members")


def test_sealed_and_trimmed_messages_are_read_from_where_they_are(
    array: Kmq, producer: KmqProducer, store: kmq.Store
):
    for message in said(1, 2, 3, 4):
        producer.send(TOPIC, message)
    assert array.poll("c") == KmqMessage(None, 1)
    store.seal()
    store.trim(TOPIC, {0: 2})
    assert bodies(array) == [3, 4]


def test_a_consumer_that_is_closed_is_forgotten(broker: KmqBroker, store: kmq.Store):
    with broker.create_consumer() as consumer:
        consumer.subscribe(TOPIC)
        consumer.subscribe(TOPIC)
        assert [group.name for group in store.groups()] == [consumer.consumer_id]
    consumer.close()
    assert store.groups() == []
    with pytest.raises(kmq.ClosedError):
        consumer.poll()
    with pytest.raises(kmq.ClosedError):
        consumer.subscribe(TOPIC)
    with pytest.raises(kmq.ClosedError), consumer:
        pass
    assert store.groups() == []


def test_a_consumer_whose_id_somebody_deleted_is_closed_or_subscribes_again(
    broker: KmqBroker, store: kmq.Store
):
    with broker.create_consumer() as consumer:
        for _ in range(2):
            consumer.subscribe(TOPIC)
            store.delete_group(consumer.consumer_id)
    assert store.groups() == []


def test_a_forked_child_does_not_forget_its_parents_consumer(tmp_path: Path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        broker = KmqBroker(store)
        broker.create_topic(TOPIC)
        with broker.create_consumer() as consumer:
            consumer.subscribe(TOPIC)
            child = os.fork()
            if not child:
                code = 1
                try:
                    consumer.subscribe(TOPIC)  # this id is the child's own
                    consumer.close()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            assert [group.name for group in store.groups()] == [consumer.consumer_id]
            child = os.fork()
            if not child:
                consumer.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            broker.create_producer().send(TOPIC, KmqMessage(None, 1))
            assert consumer.poll() == KmqMessage(None, 1)


def test_a_consumer_whose_second_subscription_failed_reads_nothing_and_says_so(
    broker: KmqBroker, producer: KmqProducer, monkeypatch: pytest.MonkeyPatch
):
    producer.send(TOPIC, KmqMessage(None, b"1"))
    with broker.create_consumer() as consumer:
        consumer.subscribe(TOPIC)
        with monkeypatch.context() as failing, pytest.raises(ZeroDivisionError):
            failing.setattr(Kmq, "register_consumer", lambda *_: 1 / 0)
            consumer.subscribe(TOPIC)
        with pytest.raises(kmq.IllegalStateError, match="subscribe to a topic first"):
            consumer.poll()
        consumer.subscribe(TOPIC)
        assert consumer.poll() == KmqMessage(None, b"1")


def test_a_consumer_that_did_not_subscribe_can_not_poll(store: kmq.Store):
    with pytest.raises(kmq.IllegalStateError, match="subscribe"):
        KmqConsumer(store).poll()
