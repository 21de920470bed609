"""Pull consumers: what a queue gets, in which order, and from where on."""

from __future__ import annotations

import math
import time

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging import pull
from kmq_spark.openmessaging.message import delivery_of
from kmq_storage.log.disk.local_log import LocalLog
from tests.unit.openmessaging.received import all_of, attached, bodies


def _send(producer: oms.Producer, name: str, *found: bytes, **headers: int | str) -> None:
    make = producer.create_bytes_message_to_topic
    if name.startswith("q"):
        make = producer.create_bytes_message_to_queue
    for body in found:
        message = make(name, body)
        for key, value in headers.items():
            message.put_headers(key, value)
        producer.send(message)
    producer.flush()


@pytest.mark.parametrize("topics", [5, None, True])
def test_topics_that_are_no_names_are_refused(settings: oms.KeyValue, topics: object):
    with pytest.raises(kmq.InvalidRequestError, match="topics must be names"):
        attached(settings, "q", topics)  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", [100, 0.5, {"OPERATION_TIMEOUT": 100}])
def test_a_wait_that_is_no_key_value_is_refused(settings: oms.KeyValue, wait: object):
    with pytest.raises(kmq.InvalidRequestError, match="poll takes a KeyValue"):
        attached(settings).poll(wait)  # type: ignore[arg-type]


def test_nothing_is_made_for_a_queue_or_topics_of_which_a_name_is_wrong(settings: oms.KeyValue):
    for queue, topics in (("a/b", ["t"]), ("q", ["t", "a/b"])):
        with pytest.raises(kmq.InvalidRequestError, match="a/b"):
            attached(settings, queue, topics)
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        assert (store.topics(), store.queues()) == ([], [])


def test_a_queue_gets_its_topics_and_what_was_sent_to_it_and_no_more(
    settings: oms.KeyValue, producer: oms.Producer
):
    _send(producer, "t", b"t1", b"t2")
    _send(producer, "u", b"u1")
    _send(producer, "v", b"v1")
    _send(producer, "q", b"q1")
    _send(producer, "q2", b"x")
    assert sorted(bodies(attached(settings, "q", ["t", "u"]))) == [b"q1", b"t1", b"t2", b"u1"]
    assert sorted(bodies(attached(settings, "q2", ["t"]))) == [b"t1", b"t2", b"x"]
    assert bodies(attached(settings, "q3", ["new"])) == []


def test_a_message_names_the_topic_or_queue_that_it_was_sent_to(
    settings: oms.KeyValue, producer: oms.Producer
):
    _send(producer, "t", b"t")
    _send(producer, "q", b"q")
    found = {m.get_body(): m.headers() for m in all_of(attached(settings, "q", ["t"]))}
    names = {b: (h.get_string("Topic"), h.get_string("Queue")) for b, h in found.items()}
    assert names == {b"t": ("t", None), b"q": (None, "q")}


def test_the_position_of_a_queue_is_stored(settings: oms.KeyValue, producer: oms.Producer):
    everything = [b"%d" % n for n in range(2000)]
    _send(producer, "t", *everything)
    first = attached(settings, "q", ["t"])
    found = [first.poll() for _ in range(700)]
    first.shutdown()
    second = attached(settings, "q", ["t"])
    assert [m.get_body() for m in found if m] + bodies(second) == everything
    second.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == []
    assert bodies(attached(settings, "other", ["t"])) == everything


def test_what_was_not_acknowledged_comes_again(settings: oms.KeyValue, producer: oms.Producer):
    _send(producer, "t", *(b"%d" % n for n in range(10)))
    first = attached(settings, "q", ["t"])
    found = all_of(first)
    for message in [*found[:4], found[7], found[0]]:
        first.ack(message.headers().get_string("MessageId"))
    first.shutdown()
    second = attached(settings, "q", ["t"])
    assert bodies(second) == [b"%d" % n for n in range(4, 10)]
    _send(producer, "t", b"more")
    (more,) = all_of(second)
    second.ack(more.headers().get_string("MessageId"))
    assert bodies(attached(settings, "q", ["t"])) == [b"%d" % n for n in range(4, 10)] + [b"more"]


def test_an_acknowledgement_counts_without_shutdown(settings: oms.KeyValue, producer: oms.Producer):
    _send(producer, "t", b"1", b"2", b"3")
    first = attached(settings, "q", ["t"])
    first.ack(first.poll().headers().get_string("MessageId"))  # type: ignore[union-attr]
    first.poll()
    assert bodies(attached(settings, "q", ["t"])) == [b"2", b"3"]


def test_an_acknowledgement_that_is_given_again_after_it_was_refused_counts(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_arguments: object, **_options: object) -> None:
        raise kmq.UnavailableError("another process is stopped")

    _send(producer, "t", b"1", b"2", b"3")
    first = attached(settings, "q", ["t"])
    one = first.poll().headers().get_string("MessageId")  # type: ignore[union-attr]
    with monkeypatch.context() as patched:
        patched.setattr(LocalLog, "commit", refuse)
        with pytest.raises(kmq.UnavailableError):
            first.ack(one)
    first.ack(one)
    assert bodies(attached(settings, "q", ["t"])) == [b"2", b"3"]


def test_a_topic_that_was_deleted_and_made_again_is_read_from_its_first_message(
    settings: oms.KeyValue, producer: oms.Producer
):
    _send(producer, "t", b"1", b"2", b"3")
    consumer = attached(settings, "q", ["t"])
    for body in (b"1", b"2"):
        assert consumer.poll().get_body() == body  # type: ignore[union-attr]
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as other:
        store.delete_topic("t")
        store.create_topic("t")
        for number in range(4, 9):
            other.send("t", b"%d" % number).result()
    consumer.attach_queue("q", ["t"])
    assert consumer.poll().get_body() == b"4"  # type: ignore[union-attr]
    consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == [b"5", b"6", b"7", b"8"]


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("partition", [0, 1])
def test_the_position_in_a_topic_that_was_deleted_is_not_stored_for_another_one_of_its_name(
    settings: oms.KeyValue, looks: bool, partition: int
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as other:
        store.create_topic("t", partitions=2)
        for body in (b"1", b"2", b"3"):
            other.send("t", body, partition=partition).result()
        consumer = attached(settings, "q", ["t"])
        consumer.poll()
        store.delete_topic("t")
        store.create_topic("t")
        for body in (b"4", b"5"):
            other.send("t", body).result()
        if looks:
            consumer._store.log.refresh()
        consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == [b"4", b"5"]


@pytest.mark.parametrize("wrong", [None, "", "x", "t:0:x", "t:x:0", "u:0:0"])
def test_an_id_of_no_message_of_the_queue_is_refused(settings: oms.KeyValue, wrong: str | None):
    with pytest.raises(kmq.InvalidRequestError, match="no message of queue q"):
        attached(settings, "q", ["t"]).ack(wrong)


def test_a_consumer_reads_one_queue_and_may_be_given_more_topics(
    settings: oms.KeyValue, producer: oms.Producer
):
    consumer = oms.PullConsumer(settings)
    assert consumer.poll() is None
    _send(producer, "t", b"t1", b"t2")
    _send(producer, "u", b"u1")
    consumer.attach_queue("q", ["t"])
    assert consumer.poll().get_body() == b"t1"  # type: ignore[union-attr]
    with pytest.raises(kmq.InvalidRequestError, match="another consumer"):
        consumer.attach_queue("other", ["t"])
    consumer.attach_queue("q", ["u"])
    assert sorted(bodies(consumer)) == [b"t2", b"u1"]
    consumer.shutdown()
    _send(producer, "u", b"u2")
    assert bodies(attached(settings, "q")) == [b"u2"]  # the binding is stored
    with pytest.raises(kmq.ClosedError):
        consumer.poll()


def test_what_it_is_bound_to_takes_turns(settings: oms.KeyValue, producer: oms.Producer):
    consumer = attached(settings, "q", ["t", "u"])
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as native:
        native.send_batch("t", [b"t"] * 10_000)
    _send(producer, "u", b"u", b"u", b"u")
    _send(producer, "q", b"q", b"q")
    everything = bodies(consumer)
    assert everything[:10] == [b"t", b"u", b"q", b"t", b"u", b"q", b"t", b"u", b"t", b"t"]
    assert len(everything) == 10_005


@pytest.mark.parametrize("acknowledges", [False, True])
def test_a_bindings_filter_and_start_hold_for_messages_too(
    settings: oms.KeyValue, acknowledges: bool
):
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store, store.producer() as sender:
        store.create_topic("t")
        store.create_queue("q")

        def send(*numbers: int) -> None:
            for number in numbers:
                sender.send("t", b"%d" % number, properties={"n": number})
            sender.send("t", b"without a number")
            sender.flush()

        send(8, 9)
        store.bind_queue("q", ["t"], start="latest", filter="n > 2")
        send(1, 2, 3, 4)
        consumer = attached(settings)
        assert bodies(consumer) == [b"3", b"4"]
        send(2, 5)
        store.bind_queue("q", ["t"], filter="n < 2")
        send(6, 1, 0, 6)
        got = all_of(consumer)
        assert [message.get_body() for message in got] == [b"5", b"1", b"0"]
        if acknowledges:
            consumer.ack(got[1].headers().get_string("MessageId"))
        consumer.shutdown()
        send(7)
        again = [b"3", b"4", b"5", b"1", b"0"] if acknowledges else []
        assert bodies(attached(settings)) == again
        assert store.describe_group("oms.q").committed["t"] == {0: store.offsets("t")[0][1]}


def test_poll_waits_as_long_as_it_is_told(settings: oms.KeyValue, producer: oms.Producer):
    consumer = attached(settings, "q", ["t"])
    assert consumer.poll(oms.KeyValue().put("OPERATION_TIMEOUT", 1)) is None
    producer.send(producer.create_bytes_message_to_topic("t", b"x"))
    found = consumer.poll(oms.KeyValue().put("OPERATION_TIMEOUT", 30_000))
    assert found is not None
    assert found.get_body() == b"x"


def test_records_of_kmq_and_its_consumers_go_with_messages(
    settings: oms.KeyValue, producer: oms.Producer
):
    _send(producer, "t", b"m", h=5)
    _send(producer, "q", b"direct")
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        with store.producer() as native:
            native.send("t", "r", headers={"a": "x", "n": None}, properties={"p": True, "q": b"b"})
            native.send("t", None, key="k")
        with store.consumer(topics=["t"]) as consumer:
            assert consumer.consume(1)[0].headers == (("h", b"5"),)
        first, second, third = (
            m for m in all_of(attached(settings, "q", ["t"])) if m.headers().contains_key("Topic")
        )
        assert [info.name for info in store.queues()] == ["q"]
        assert sorted(d.value or b"" for d in store.queue("q").receive(9)) == [
            b"",
            b"direct",
            b"m",
            b"r",
        ]
    assert first.headers().get_int("h") == 5
    assert second.headers().get_string("a") == "x"
    assert not second.headers().contains_key("n")
    assert second.properties().values == {"p": True, "q": b"b"}
    assert third.get_body() is None


def test_a_topic_that_was_trimmed_is_read_from_its_start(
    settings: oms.KeyValue, producer: oms.Producer
):
    consumer = attached(settings, "q", ["t"])
    _send(producer, "t", b"0", b"1", b"2")
    assert consumer.poll() is not None
    consumer.shutdown()
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        store.trim("t", {0: 2})
    assert bodies(attached(settings, "q", ["t"])) == [b"2"]


# --- headers that decide when ---------------------------------------------------------------


def test_a_message_that_is_too_old_is_not_handed_out(
    settings: oms.KeyValue, producer: oms.Producer
):
    now = time.time_ns() // 1_000_000
    _send(producer, "t", b"timeout", Timeout=1, BornTimestamp=now - 1000)
    _send(producer, "t", b"never", Timeout=0, StopTime=1)
    _send(producer, "t", b"stopped", StartTime=1, StopTime=now - 1)
    _send(producer, "t", b"stop before start", StartTime=5, StopTime=1)
    _send(producer, "t", b"timeout wins", Timeout=600_000, StopTime=1)
    _send(producer, "t", b"odd", Timeout="soon")
    consumer = attached(settings, "q", ["t"])
    assert bodies(consumer) == [b"never", b"stop before start", b"timeout wins", b"odd"]
    consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == []


@pytest.mark.parametrize(
    ("headers", "window"),
    [
        ({"StopTime": "tomorrow"}, (-math.inf, math.inf, 4)),
        ({"StartTime": "soon", "StopTime": 7}, (-math.inf, 7, 4)),
        ({"Timeout": "soon", "StartTime": 5}, (5, math.inf, 4)),
        ({"Timeout": math.nan, "StopTime": 7}, (-math.inf, 7, 4)),
        ({"Timeout": 10, "BornTimestamp": "today", "StoreTimestamp": 50}, (-math.inf, 60, 4)),
        ({"Timeout": 10, "StartTime": 99, "BornTimestamp": 1}, (-math.inf, 11, 4)),
        ({"Priority": "high"}, (-math.inf, math.inf, 4)),
        ({"Priority": math.nan}, (-math.inf, math.inf, 4)),
        ({"Priority": "9", "StartTime": "5", "StopTime": "7"}, (5, 7, 9)),
    ],
)
def test_a_header_that_says_no_number_keeps_no_message_back(
    headers: dict[str, int | float | str], window: tuple[float, float, float]
):
    assert delivery_of(headers) == window


def test_a_message_whose_time_ends_while_another_one_is_worked_on_is_not_handed_out(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    now = time.time_ns() // 1_000_000
    _send(producer, "t", b"1")
    _send(producer, "t", b"2", Timeout=60_000)
    _send(producer, "t", b"3")
    consumer = attached(settings, "q", ["t"])
    first = consumer.poll()
    assert first is not None
    consumer.ack(first.headers().get_string("MessageId"))
    monkeypatch.setattr(consumer, "_now", lambda: now + 100_000)
    assert bodies(consumer) == [b"3"]
    consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == [b"3"]  # nobody acknowledged it


def test_a_message_is_not_handed_out_before_its_time_and_holds_up_nobody(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    now = time.time_ns() // 1_000_000
    soon = now + 2_000
    _send(producer, "t", b"later", StartTime=soon)
    _send(producer, "t", b"now")
    consumer = attached(settings, "q", ["t"])
    wait = oms.KeyValue().put("OPERATION_TIMEOUT", 30_000)
    with monkeypatch.context() as patch:  # else it may be soon before the first poll
        patch.setattr(consumer, "_now", lambda: now)
        first = consumer.poll(wait)
    second = consumer.poll(wait)
    assert time.time_ns() // 1_000_000 >= soon
    assert first is not None
    assert first.get_body() == b"now"
    assert second is not None
    assert second.get_body() == b"later"
    consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == []


def test_the_position_does_not_pass_a_message_that_waits_for_its_time(
    settings: oms.KeyValue, producer: oms.Producer
):
    _send(producer, "t", b"before")
    _send(producer, "t", b"later", StartTime=time.time_ns() // 1_000_000 + 86_400_000)
    _send(producer, "t", b"after")
    consumer = attached(settings, "q", ["t"])
    assert bodies(consumer) == [b"before", b"after"]
    consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == [b"after"]
    with kmq.open(str(settings.get_string("STORE_PATH"))) as store:
        assert store.describe_group("oms.q").lag["t"] == {0: 2}


def test_nor_does_it_when_so_much_was_handed_out_that_it_is_not_remembered(
    settings: oms.KeyValue, producer: oms.Producer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pull, "_REMEMBERED", 1)
    _send(producer, "t", b"later", StartTime=time.time_ns() // 1_000_000 + 86_400_000)
    _send(producer, "t", b"1", b"2")
    consumer = attached(settings, "q", ["t"])
    assert bodies(consumer) == [b"1", b"2"]
    _send(producer, "t", b"3")
    (last,) = all_of(consumer)
    consumer.ack(last.headers().get_string("MessageId"))
    consumer.shutdown()
    assert bodies(attached(settings, "q", ["t"])) == [b"1", b"2", b"3"]


def test_more_important_messages_come_first(settings: oms.KeyValue, producer: oms.Producer):
    _send(producer, "q", b"usual", b"usual too")
    _send(producer, "q", b"less", Priority=1)
    _send(producer, "q", b"urgent", Priority=9)
    assert bodies(attached(settings, "q")) == [b"urgent", b"usual", b"usual too", b"less"]
