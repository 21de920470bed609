"""Queues as things with a name: made, bound, filtered, listed and deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kmq_spark as kmq


def _send(store: kmq.Store, topic: str, *values: bytes, **facts: Any) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send(topic, value, **facts)


def _all(store: kmq.Store, queue: str) -> list[bytes]:
    return sorted(each.value for each in store.queue(queue).receive(1000))


def test_a_queue_has_the_defaults_that_are_promised(store: kmq.Store):
    info = store.create_queue("q")
    assert (info.name, info.topics) == ("q", [])
    settings = info.settings
    assert (settings.lock_timeout, settings.max_deliveries) == (30.0, 16)
    assert (settings.backoff, settings.order) == ((1.0, 5.0, 30.0, 120.0), "none")
    assert (settings.dead_letter, settings.capacity) == (None, None)
    assert settings.uniq_window == 120.0
    assert store.queues() == [info]


def test_a_second_create_keeps_the_first_and_its_data(store: kmq.Store):
    store.create_topic("t")
    _send(store, "t", b"1")
    store.create_queue("q", topics=["t"], lock_timeout=5)
    assert store.create_queue("q", topics=["t"], lock_timeout=timedelta(seconds=5)).topics == ["t"]
    store.create_topic("u")
    with pytest.warns(kmq.KmqWarning, match=r"lock_timeout=5.0 \(asked: 9.0\).*not bound to u"):
        info = store.create_queue("q", topics=["t", "u"], lock_timeout=9)
    assert info.settings.lock_timeout == 5
    with pytest.raises(kmq.AlreadyExistsError, match="q"):
        store.create_queue("q", exist_ok=False)
    assert _all(store, "q") == [b"1"]


def test_topics_and_queues_have_names_of_their_own(store: kmq.Store):
    store.create_topic("same")
    store.create_queue("same")
    _send(store, "same", b"topic")
    assert store.queue("same").stats().ready == 0
    store.delete_topic("same")
    assert [info.name for info in store.queues()] == ["same"]
    with pytest.raises(kmq.InvalidRequestError):
        store.delete_topic("queue:same")


def test_binding_later_starts_where_it_is_told_to(store: kmq.Store):
    store.create_topic("t", partitions=2)
    _send(store, "t", b"old", partition=1)
    between = datetime.now(UTC)
    for name in ("early", "late", "since"):
        store.create_queue(name)
    _send(store, "t", b"new", partition=0)
    store.bind_queue("early", ["t"])
    store.bind_queue("late", "t", start="latest")
    store.bind_queue("since", "t", start=between)
    _send(store, "t", b"newest", partition=1)
    assert _all(store, "early") == [b"new", b"newest", b"old"]
    assert _all(store, "late") == [b"newest"]
    assert _all(store, "since") == [b"new", b"newest"]


def test_a_partition_that_is_added_is_read_from_its_beginning(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q")
    store.bind_queue("q", "t", start="latest")
    store.add_partitions("t", 2)
    _send(store, "t", b"1", partition=1)
    assert _all(store, "q") == [b"1"]


def test_a_queue_gives_up_what_it_is_not_bound_to_any_more(store: kmq.Store):
    for topic in ("t", "u"):
        store.create_topic(topic)
        _send(store, topic, topic.encode(), topic.encode())
    store.create_queue("q", topics=["t", "u"])
    held = store.queue("q").receive(1)
    topic = held[0].topic
    store.unbind_queue("q", topic)
    with pytest.raises(kmq.LeaseExpiredError):
        held[0].ack()
    other = "u" if topic == "t" else "t"
    assert _all(store, "q") == [other.encode()] * 2
    assert store.queues()[0].topics == [other]
    store.unbind_queue("q", topic)


def test_a_deleted_topic_is_gone_from_its_queues(store: kmq.Store):
    store.create_topic("t")
    _send(store, "t", b"1", b"2")
    store.create_queue("q", topics=["t"])
    held = store.queue("q").receive(1)
    store.delete_topic("t")
    assert store.queues()[0].topics == []
    assert store.queue("q").receive(9) == []
    with pytest.raises(kmq.LeaseExpiredError):
        held[0].ack()


def test_a_deleted_queue_is_gone_and_another_one_of_its_name_is_new(store: kmq.Store):
    store.create_queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"1").result()
        old = store.queue("q")
        (held,) = old.receive()
        store.delete_queue("q")
        for call in (lambda: store.queue("q"), lambda: store.delete_queue("q"), held.ack):
            with pytest.raises(kmq.NotFoundError, match=r"Queue\[q\]"):
                call()
        with pytest.raises(kmq.NotFoundError, match=r"Queue\[q\] doesn't exist."):
            producer.send_to_queue("q", b"2").result()
        store.create_queue("q")
        assert store.queue("q").receive(9) == []
        with pytest.raises(kmq.NotFoundError):
            old.receive()


def test_what_a_filter_refuses_never_enters_the_queue(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q")
    store.bind_queue("q", "t", filter="n >= 5 and (kind in ('a', 'b') or kind is null)")
    with store.producer() as producer:
        for n in range(10):
            for kind in ("a", "c", None):
                properties = {"n": n} | ({} if kind is None else {"kind": kind})
                producer.send("t", b"%d%s" % (n, (kind or "-").encode()), properties=properties)
        producer.send("t", b"without")
    queue = store.queue("q")
    assert queue.stats().ready == 10
    assert queue.state().num_rows == 10
    assert _all(store, "q") == sorted(b"%d%s" % (n, k) for n in range(5, 10) for k in (b"a", b"-"))


def test_a_filter_may_name_as_many_values_as_it_likes(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q")
    many = [str(n) for n in range(3_000)]
    store.bind_queue("q", "t", tags=" || ".join(many), filter=" or ".join(f"n = {n}" for n in many))
    for n in (7, 3_000):
        _send(store, "t", b"%d" % n, properties={"tag": str(n), "n": n})
    assert _all(store, "q") == [b"7"]


@pytest.mark.parametrize(
    ("tags", "filter_", "enters"),
    [
        ("a", None, b"a1 a2"),
        (" a||b ", None, b"a1 a2 b1 b2"),
        ("a || b", "n = 2", b"a2 b2"),
        ("a", "n = 1 or n = 2", b"a1 a2"),
        ("it's", None, b"it's1 it's2"),
        ("*", None, b"-1 -2 a1 a2 b1 b2 it's1 it's2"),
        ("*", "n = 1", b"-1 a1 b1 it's1"),
    ],
)
def test_who_names_tags_gets_records_with_one_of_them(
    store: kmq.Store, tags: str, filter_: str | None, enters: bytes
):
    store.create_topic("t")
    store.create_queue("q")
    store.bind_queue("q", "t", tags=tags, filter=filter_)
    for tag in ("a", "b", "it's", None):
        for n in (1, 2):
            properties = {"n": n} | ({} if tag is None else {"tag": tag})
            _send(store, "t", f"{tag or '-'}{n}".encode(), properties=properties)
    assert _all(store, "q") == enters.split()


def test_another_filter_holds_from_then_on(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q")
    store.bind_queue("q", "t", filter="n = 1")
    for values in ((b"old", b"older"), (b"new", b"newer")):
        for n, value in enumerate(values):
            _send(store, "t", value, properties={"n": n})
        store.bind_queue("q", "t", filter="n = 0")
    _send(store, "t", b"newest", properties={"n": 0})
    store.bind_queue("q", "t")
    _send(store, "t", b"all", properties={"n": 7})
    assert _all(store, "q") == [b"all", b"new", b"newest", b"older"]


def test_a_full_queue_takes_nothing_more_until_something_is_finished(store: kmq.Store):
    store.create_queue("q", capacity=2)
    with store.producer(linger=0) as producer:
        for n in range(2):
            producer.send_to_queue("q", b"%d" % n).result()
        with pytest.raises(kmq.QueueFullError, match="queue q is full") as caught:
            producer.send_to_queue("q", b"3").result()
        assert caught.value.context["room"] == 0
        queue = store.queue("q")
        (held,) = queue.receive()
        with pytest.raises(kmq.QueueFullError):
            producer.send_to_queue("q", b"3").result()
        held.ack()
        producer.send_to_queue("q", b"3").result()
    assert [each.value for each in queue.receive(9)] == [b"1", b"3"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lock_timeout", 0),
        ("lock_timeout", -1),
        ("lock_timeout", float("nan")),
        ("lock_timeout", 1e11),
        ("uniq_window", 1e308),
        ("lock_timeout", "30"),
        ("lock_timeout", True),
        ("max_deliveries", 0),
        ("max_deliveries", 1.5),
        ("max_deliveries", True),
        ("backoff", 7),
        ("backoff", "15"),
        ("backoff", (-1,)),
        ("backoff", (float("inf"),)),
        ("backoff", (1e308,)),
        ("order", "any"),
        ("order", None),
        ("dead_letter", "a/b"),
        ("dead_letter", "q"),
        ("dead_letter", 5),
        ("capacity", 0),
        ("capacity", "many"),
        ("uniq_window", 0),
    ],
)
def test_a_bad_setting_is_named_and_nothing_is_made(store: kmq.Store, name: str, value: object):
    with pytest.raises(
        kmq.InvalidRequestError, match="queue name" if value in ("a/b", 5) else name
    ):
        store.create_queue("q", **{name: value})
    assert store.queues() == []


@pytest.mark.parametrize("topic", [["t"], {}, None, 5, "a/b"], ids=repr)
def test_what_can_not_be_a_topic_is_refused_also_for_a_queue_that_exists(
    store: kmq.Store, topic: Any
):
    store.create_queue("q")
    for name in ("q", "new"):
        with pytest.raises(kmq.InvalidRequestError, match="topic name"):
            store.create_queue(name, topics=[topic])
    assert [queue.name for queue in store.queues()] == ["q"]


@pytest.mark.parametrize("name", ["", ".", "a/b", "x" * 250, "queue:q", None, b"q"])
def test_a_bad_name_is_refused_everywhere(store: kmq.Store, name: Any):
    with store.producer() as producer:
        for call in (
            lambda: store.create_queue(name),
            lambda: store.queue(name),
            lambda: store.delete_queue(name),
            lambda: store.bind_queue(name, []),
            lambda: store.unbind_queue(name, []),
            lambda: producer.send_to_queue(name, b"1"),
        ):
            with pytest.raises(kmq.InvalidRequestError):
                call()


def test_what_is_not_there_is_said_by_name(store: kmq.Store):
    store.create_queue("q")
    for call in (
        lambda: store.create_queue("other", topics=["nope"]),
        lambda: store.bind_queue("q", ["nope"]),
        lambda: store.unbind_queue("q", ["nope"]),
    ):
        with pytest.raises(kmq.NotFoundError, match=r"Topic\[nope\] doesn't exist"):
            call()
    for call in (lambda: store.queue("nope"), lambda: store.bind_queue("nope", [])):
        with pytest.raises(kmq.NotFoundError, match=r"Queue\[nope\] doesn't exist"):
            call()
    assert [info.name for info in store.queues()] == ["q"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": None},
        {"value": 5},
        {"key": 5},
        {"delay": -1},
        {"delay": "1"},
        {"delay": float("nan")},
        {"delay": 1e300},
        {"delay": 1, "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"deliver_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is the point
        {"deliver_at": 5},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is the point
        {"priority": 10},
        {"priority": -1},
        {"priority": True},
        {"priority": "high"},
        {"headers": 5},
        {"properties": {"": 1}},
    ],
    ids=str,
)
def test_a_bad_record_is_refused_at_once(store: kmq.Store, wrong: dict[str, Any]):
    store.create_queue("q")
    with store.producer() as producer, pytest.raises(kmq.InvalidRequestError):
        producer.send_to_queue("q", **({"value": b"1"} | wrong))
    assert store.queue("q").stats().ready == 0


def test_bad_calls_of_a_queue_are_refused(store: kmq.Store):
    store.create_queue("q")
    store.create_queue("other")
    store.create_topic("t")
    with store.producer() as producer:
        to_topic = producer.send("t", b"1").result()
        for name in ("q", "other"):
            producer.send_to_queue(name, b"1").result()
    queue = store.queue("q")
    (held,), (foreign,) = queue.receive(), store.queue("other").receive()
    bad: Any = object()
    for call in (
        lambda: queue.receive(0),
        lambda: queue.receive(True),
        lambda: queue.receive(1, timeout=-1),
        lambda: queue.receive_arrow(0),
        lambda: queue.ack([bad]),
        lambda: queue.ack(foreign),
        lambda: held.nack(-1),
        lambda: held.nack(bad),
        lambda: held.nack(1e300),
        lambda: held.reject(bad),
        lambda: held.extend(0),
        lambda: held.extend(bad),
        lambda: held.extend(1e300),
        lambda: queue.redrive(0),
        lambda: queue.recall(to_topic),
        lambda: queue.recall(bad),
        lambda: store.bind_queue("q", "t", start="middle"),
        lambda: store.bind_queue("q", "t", filter="n ="),
        lambda: store.bind_queue("q", "t", filter=bad),
        lambda: store.bind_queue("q", "t", tags="a || "),
        lambda: store.bind_queue("q", "t", tags=bad),
        lambda: store.bind_queue("q", "t", tags="a", filter="n = 1) or (n = 2"),
        lambda: store.bind_queue("q", "t", filter="(" * 10_000 + "n = 1" + ")" * 10_000),
    ):
        with pytest.raises(kmq.InvalidRequestError):
            call()
    held.ack()


def test_only_a_record_of_the_queue_itself_is_taken_back(store: kmq.Store):
    for name in ("q", "other"):
        store.create_queue(name)
        with store.producer() as producer:
            there = producer.send_to_queue(name, b"1").result()
    queue = store.queue("q")
    assert there.queue == "other"
    with pytest.raises(kmq.InvalidRequestError, match=r"to queue q, not .*queue='other'"):
        queue.recall(there)
    store.delete_queue("other")
    store.create_queue("other")
    with store.producer() as producer:
        producer.send_to_queue("other", b"2").result()
    assert not store.queue("other").recall(there)


def test_who_wants_more_than_there_ever_is_gets_what_there_is(store: kmq.Store):
    store.create_queue("q")
    with store.producer(linger=0) as producer:
        producer.send_to_queue("q", b"1").result()
    assert [each.value for each in store.queue("q").receive(10**30)] == [b"1"]


def test_a_read_only_store_tells_of_queues_and_changes_none(tmp_path):
    with kmq.open(tmp_path / "store", durability="os") as store, store.producer() as producer:
        store.create_queue("q", lock_timeout=0.01, max_deliveries=1)
        producer.send_to_queue("q", b"1").result()
        store.queue("q").receive()
    with kmq.open(tmp_path / "store", read_only=True) as store:
        queue = store.queue("q")
        assert queue.stats().delivered == 1
        assert queue.state().num_rows == 1
        for call in (
            queue.receive,
            queue.redrive,
            lambda: store.create_queue("r"),
            lambda: store.delete_queue("q"),
        ):
            with pytest.raises(kmq.IllegalStateError, match="read-only"):
                call()
