"""What a consumer reads: topics by name or pattern, partitions by hand, and changes of both.

Finds: topics and partitions that are seen late or never, callbacks with the wrong partitions, and
a topic that is taken for its namesake.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.log.state.store_state import StoreState
from tests.support.members import without_watch


def _send(store: kmq.Store, topic: str, value: bytes, partition: int | None = None) -> None:
    with store.producer() as producer:
        producer.send(topic, value, partition=partition).result(10)


def _values(consumer: kmq.Consumer) -> list[bytes | None]:
    return sorted(record.value or b"" for record in consumer.consume(timeout=0))


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topics `orders-eu` and `orders-us` of two partitions and `events` of one."""
    for name, partitions in (("orders-eu", 2), ("orders-us", 2), ("events", 1)):
        store.create_topic(name, partitions=partitions)
        _send(store, name, name.encode())
    return store


def test_several_topics_are_read_together(shop: kmq.Store):
    with shop.consumer(topics=["events", "orders-us", "events"]) as consumer:
        assert consumer.assignment() == {"events": [0], "orders-us": [0, 1]}
        assert _values(consumer) == [b"events", b"orders-us"]


def test_a_topic_may_be_named_by_itself(shop: kmq.Store):
    with shop.consumer(topics="events") as consumer:
        assert consumer.assignment() == {"events": [0]}


def test_an_unknown_topic_is_not_found_at_once_and_leaves_no_group(shop: kmq.Store):
    before = shop.log.refresh().lsn
    with pytest.raises(kmq.NotFoundError, match=r"Topic\[missing\] doesn't exist."):
        shop.consumer("g", topics=["events", "missing"])
    assert shop.log.refresh().lsn == before
    with shop.consumer("g", topics=["events"]) as consumer:
        with pytest.raises(kmq.NotFoundError):
            consumer.subscribe(["missing"])
        assert consumer.assignment() == {"events": [0]}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ["orders-eu", "orders-us"]),
        ("-us", ["orders-us"]),
        ("^eu", []),
        ("^orders-eu$", ["orders-eu"]),
        ("e", ["events", "orders-eu", "orders-us"]),
        ("orders|ev", ["events", "orders-eu", "orders-us"]),
    ],
)
def test_a_pattern_is_found_anywhere_unless_anchored(
    shop: kmq.Store, pattern: str, found: list[str]
):
    with shop.consumer(pattern=pattern) as consumer:
        assert sorted(consumer.assignment()) == found


def test_a_pattern_sees_later_topics(shop: kmq.Store):
    with shop.consumer(pattern="^orders") as consumer:
        assert len(consumer.consume(timeout=0)) == 2
        shop.create_topic("orders-asia")
        shop.create_topic("other")
        _send(shop, "orders-asia", b"asia")
        _send(shop, "other", b"other")
        assert _values(consumer) == [b"asia"]
        assert sorted(consumer.assignment()) == ["orders-asia", "orders-eu", "orders-us"]


def test_a_waiting_consumer_with_a_pattern_wakes_for_a_new_topic(shop: kmq.Store):
    import threading

    def later() -> None:
        shop.create_topic("orders-late")
        _send(shop, "orders-late", b"late")

    with shop.consumer(pattern="late") as consumer:
        sender = threading.Timer(0.2, later)
        sender.start()
        record = consumer.poll(timeout=20)
        sender.join()
    assert record is not None
    assert record.value == b"late"


def test_a_later_topic_that_a_pattern_finds_is_read_from_its_first_record(shop: kmq.Store):
    with shop.consumer(pattern="orders", auto_offset_reset="earliest") as consumer:
        consumer.consume(timeout=0)
        shop.create_topic("orders-new")
        _send(shop, "orders-new", b"1")
        _send(shop, "orders-new", b"2")
        assert _values(consumer) == [b"1", b"2"]


def test_added_partitions_are_read_too(shop: kmq.Store):
    with shop.consumer(topics=["events"]) as consumer:
        assert _values(consumer) == [b"events"]
        shop.add_partitions("events", 3)
        _send(shop, "events", b"new", partition=2)
        assert _values(consumer) == [b"new"]
        assert consumer.assignment() == {"events": [0, 1, 2]}


def test_an_assignment_by_hand_reads_these_partitions_only(shop: kmq.Store):
    _send(shop, "orders-eu", b"zero", partition=0)
    _send(shop, "orders-eu", b"one", partition=1)
    with shop.consumer() as consumer:
        consumer.assign({"orders-eu": [1], "events": [0]})
        assert consumer.assignment() == {"orders-eu": [1], "events": [0]}
        assert {b"one", b"events"} <= set(_values(consumer))
        shop.add_partitions("events", 2)
        assert consumer.assignment() == {"orders-eu": [1], "events": [0]}
        for wrong in ({"events": [2]}, {"missing": [0]}, {"events": [-1]}):
            with pytest.raises(kmq.NotFoundError):
                consumer.assign(wrong)
        assert consumer.assignment() == {"orders-eu": [1], "events": [0]}


def test_callbacks_get_the_partitions_by_topic(shop: kmq.Store):
    told: list[tuple[str, Any]] = []
    with shop.consumer() as consumer:
        consumer.subscribe(
            pattern="orders-e|events",
            on_assign=lambda partitions: told.append(("assign", partitions)),
            on_revoke=lambda partitions: told.append(("revoke", partitions)),
            on_lost=lambda partitions: told.append(("lost", partitions)),
        )
        assert told == [("assign", {"events": [0], "orders-eu": [0, 1]})]
        told.clear()
        shop.add_partitions("events", 2)
        assert len(consumer.consume(timeout=0)) == 2
        assert told == [("assign", {"events": [1]})]
        told.clear()
        shop.delete_topic("orders-eu")
        assert consumer.poll() is None
        assert told == [("lost", {"orders-eu": [0, 1]})]
        told.clear()
        consumer.subscribe(["orders-us"], on_assign=lambda p: told.append(("other", p)))
        assert told == [("revoke", {"events": [0, 1]}), ("other", {"orders-us": [0, 1]})]


def test_a_close_revokes(shop: kmq.Store):
    told: list[Any] = []
    consumer = shop.consumer()
    consumer.subscribe(["events"], on_revoke=told.append)
    consumer.close()
    assert told == [{"events": [0]}]


@pytest.mark.parametrize("group", [None, "g"])
def test_what_another_subscription_still_names_goes_on_as_it_was(
    shop: kmq.Store, group: str | None
):
    told: list[tuple[str, Any]] = []

    def subscribe(*topics: str) -> None:
        consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked)

    def assigned(partitions: Any) -> None:
        told.append(("assign", partitions))

    def revoked(partitions: Any) -> None:
        told.append(("revoke", partitions))

    with shop.consumer(group) as consumer:
        subscribe("orders-eu", "events")
        assert consumer.consume(9)
        consumer.pause({"events": [0]})
        _send(shop, "events", b"later")
        subscribe("events", "orders-us")
        assert _values(consumer) == [b"orders-us"]
        consumer.resume()
        assert _values(consumer) == [b"later"]
        consumer.subscribe(["events"], on_assign=lambda each: told.append(("new", each)))
    assert told == [
        ("assign", {"orders-eu": [0, 1], "events": [0]}),
        ("revoke", {"orders-eu": [0, 1]}),
        ("assign", {"orders-us": [0, 1]}),
        ("revoke", {"orders-us": [0, 1]}),
        ("new", {"events": [0]}),
    ]


def test_another_subscription_leaves_out_nothing_that_latest_would_have_read(shop: kmq.Store):
    with shop.consumer("g", topics=["orders-eu"], auto_offset_reset="latest") as consumer:
        assert _values(consumer) == []
        _send(shop, "orders-eu", b"new", partition=0)
        shop.add_partitions("orders-eu", 3)
        _send(shop, "orders-eu", b"there too", partition=2)
        consumer.subscribe(["orders-eu", "events"])
        assert _values(consumer) == [b"new", b"there too"]


def test_who_lost_its_place_keeps_nothing_of_its_subscription(shop: kmq.Store):
    """Others may have read on meanwhile: it begins where the group is."""
    told: list[Any] = []
    with without_watch():
        first, second = shop.consumer("g"), shop.consumer("g", topics=["events"])
    with first, second:
        first.subscribe(["orders-eu"], on_lost=told.append)
        assert first.consume(9)
        second._member.place._plan_away({first._member.place.epoch})  # type: ignore[union-attr]
        first.subscribe(["orders-eu"])
        assert told == [{"orders-eu": [0, 1]}]
        assert _values(first) == [b"orders-eu"]


def test_what_was_in_hand_and_not_handed_out_is_not_lost_by_a_new_subscription(shop: kmq.Store):
    for number in range(5):
        _send(shop, "events", b"%d" % number)
    with shop.consumer("g", topics=["events"]) as consumer:
        assert consumer.poll() is not None
        consumer.commit()
        consumer.subscribe(["events", "orders-us"])
        assert consumer.position()["events"] == {0: 1}
        assert len(consumer.consume(timeout=0)) == 6


def test_a_topic_made_anew_is_another_topic(shop: kmq.Store):
    with shop.consumer("g", topics=["events"]) as consumer:
        consumer.consume(timeout=0)
        consumer.commit()
        shop.delete_topic("events")
        assert consumer.poll() is None
        assert consumer.assignment() == {}
        shop.create_topic("events")
        _send(shop, "events", b"new")
        record = consumer.poll(timeout=5)
        assert record is not None
        assert (record.value, record.offset) == (b"new", 0)
        assert consumer.committed() == {}


@pytest.mark.parametrize("group", [None, "g"])
def test_latest_leaves_nothing_out_of_partitions_and_topics_that_come_later(
    shop: kmq.Store, group: str | None
):
    shop.create_topic("late-1")
    _send(shop, "late-1", b"before")
    with shop.consumer(group, pattern="^late", auto_offset_reset="latest") as consumer:
        shop.add_partitions("late-1", 2)
        shop.create_topic("late-2")
        with shop.producer() as producer:
            producer.send("late-1", b"1", partition=0)
            producer.send("late-1", b"2", partition=1)
            producer.send("late-2", b"3")
        found: list[kmq.Record] = []
        while more := consumer.consume(timeout=0.2):
            found += more
        assert sorted(each.value or b"" for each in found) == [b"1", b"2", b"3"]
    with shop.consumer(group, pattern="^late", auto_offset_reset="latest") as consumer:
        assert consumer.poll() is None  # to who comes only now these were there before


def test_a_member_that_names_its_topics_goes_through_no_others_when_one_comes(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t", partitions=2)
    with store.consumer("g", topics=["t"]) as consumer:
        assert consumer.poll() is None
        store.create_topic("other")
        with monkeypatch.context() as patched:
            patched.setattr(StoreState, "user_topics", None)
            assert consumer.poll() is None
            assert consumer.assignment() == {"t": [0, 1]}
        store.add_partitions("t", 3)
        assert consumer.assignment() == {"t": [0, 1, 2]}
        store.delete_topic("t")
        store.create_topic("t")
        assert consumer.assignment() == {"t": [0]}


def test_a_topic_of_another_schema_that_comes_during_consume_arrow_is_refused_and_skips_nothing(
    store: kmq.Store,
):
    store.create_topic("plain")
    with store.consumer(pattern=".") as consumer, store.producer() as producer:

        def come_later() -> None:
            store.create_topic("typed", schema=pa.schema([("id", pa.int64())]))
            with producer.transaction() as both:
                both.send("typed", {"id": 1})
                both.send("plain", b"1")

        coming = threading.Timer(0.1, come_later)
        coming.start()
        with pytest.raises(kmq.InvalidRequestError, match="pause one of them"):
            consumer.consume_arrow(timeout=10)
        coming.join()
        consumer.pause({"typed": [0]})
        table = consumer.consume_arrow(timeout=1)
        assert table is not None
        assert table.column("value").to_pylist() == [b"1"]
        consumer.pause({"plain": [0]})
        consumer.resume({"typed": [0]})
        table = consumer.consume_arrow(timeout=1)
        assert table is not None
        assert table.column("id").to_pylist() == [1]
