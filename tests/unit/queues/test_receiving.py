"""Receiving and answering: who holds a record, for how long, and what an answer does."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.support.clock import Clock


def _values(deliveries: list[Any]) -> list[bytes]:
    return [each.value for each in deliveries]


def _send(store: kmq.Store, queue: str, *values: bytes, **facts: Any) -> list[Any]:
    with store.producer(linger=0) as producer:
        return [producer.send_to_queue(queue, value, **facts).result() for value in values]


def test_a_queue_gets_its_topics_in_full_and_what_was_sent_to_it(store: kmq.Store):
    store.create_topic("orders", partitions=2)
    with store.producer() as producer:
        for n in range(6):
            producer.send("orders", b"%d" % n, key=b"k%d" % n)
    for name in ("a", "b"):
        store.create_queue(name, topics=["orders"])
    _send(store, "a", b"only a")
    for name, more in (("a", [b"only a"]), ("b", [])):
        received = store.queue(name).receive(100)
        assert sorted(_values(received)) == sorted([b"%d" % n for n in range(6)] + more)
        assert {each.queue for each in received} == {name}
        assert {each.topic for each in received} == ({"orders", None} if more else {"orders"})
    assert [topic.name for topic in store.topics()] == ["orders"]


def test_a_record_has_all_that_was_sent(store: kmq.Store):
    store.create_queue("q")
    with store.producer() as producer:
        sent = producer.send_to_queue("q", "text", "key", headers={"h": b"1"}, properties={"n": 7})
        metadata = sent.result()
    (received,) = store.queue("q").receive()
    assert (received.value, received.key) == (b"text", b"key")
    assert received.headers == (("h", b"1"),)
    assert received.properties == {"n": 7}
    assert (received.topic, received.partition, received.offset) == (None, 0, metadata.offset)
    assert received.timestamp == metadata.timestamp
    assert received.delivery_count == 1
    assert received.locked_until.tzinfo is UTC
    assert (metadata.topic, metadata.duplicate) == (None, False)


def test_what_one_receiver_holds_no_other_one_gets(store: kmq.Store):
    store.create_queue("q")
    _send(store, "q", b"1", b"2", b"3")
    first, second = store.queue("q"), store.queue("q")
    assert _values(first.receive(2)) == [b"1", b"2"]
    assert _values(second.receive(9)) == [b"3"]
    assert first.receive(9) == second.receive(9) == []


def test_an_acknowledged_record_never_comes_again(store: kmq.Store, clock: Clock):
    store.create_queue("q", lock_timeout=30)
    _send(store, "q", b"1", b"2")
    queue = store.queue("q")
    one, two = queue.receive(2)
    one.ack()
    queue.ack([two])
    clock.pass_seconds(31)
    assert queue.receive(9) == []
    stats = queue.stats()
    assert (stats.ready, stats.locked, stats.delayed) == (0, 0, 0)
    assert (stats.delivered, stats.acked, stats.dead, stats.expired) == (2, 2, 0, 0)


def test_a_record_comes_again_at_once_when_its_lock_has_ended(store: kmq.Store):
    store.create_queue("q", lock_timeout=60, backoff=(60,))
    _send(store, "q", b"1")
    queue = store.queue("q")
    (held,) = queue.receive()
    held.extend(0.1)  # which ends it sooner
    (again,) = queue.receive(timeout=None)
    assert (again.value, again.delivery_count) == (b"1", 2)
    with pytest.raises(kmq.LeaseExpiredError):
        held.ack()
    assert queue.stats().locked == 1
    again.ack()


def test_a_late_answer_changes_nothing_and_says_so(store: kmq.Store):
    store.create_queue("q", lock_timeout=0.05)
    _send(store, "q", b"1", b"2")
    queue = store.queue("q")
    late = queue.receive(2)
    held = queue.receive(1, timeout=None)
    before = queue.state()
    for answer in (
        late[0].ack,
        late[0].nack,
        late[0].reject,
        lambda: late[0].extend(9),
        lambda: queue.ack([*late, *held]),
    ):
        with pytest.raises(kmq.LeaseExpiredError, match="too late"):
            answer()
    assert queue.state().select(["offset", "delivery_count"]) == before.select(
        ["offset", "delivery_count"]
    )
    assert [info.name for info in store.queues()] in (["q"], ["q", "q.dlq"])
    assert queue.stats().dead == queue.stats().acked == 0


def test_a_second_answer_is_a_late_one(store: kmq.Store):
    store.create_queue("q")
    _send(store, "q", b"1")
    (held,) = store.queue("q").receive()
    held.ack()
    with pytest.raises(kmq.LeaseExpiredError):
        held.ack()
    assert store.queue("q").stats().acked == 1


def test_what_was_received_from_a_deleted_queue_is_no_answer_for_one_of_its_name(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send("t", b"1").result()
    held = []
    for _ in range(2):
        store.create_queue("q", topics=["t"])
        queue = store.queue("q")
        held += queue.receive()
        if len(held) == 1:
            store.delete_queue("q")
    with pytest.raises(kmq.LeaseExpiredError):
        queue.ack(held[0])
    queue.ack(held[1])


def test_an_extended_lock_holds_longer(store: kmq.Store, clock: Clock):
    store.create_queue("q", lock_timeout=30)
    _send(store, "q", b"1")
    queue = store.queue("q")
    (held,) = queue.receive()
    before = held.locked_until
    held.extend(timedelta(minutes=5))
    assert held.locked_until > before + timedelta(minutes=4)
    clock.pass_seconds(60)
    assert queue.receive() == []
    held.ack()


def test_a_negative_answer_waits_as_told_or_as_the_queue_says(store: kmq.Store, clock: Clock):
    store.create_queue("q", backoff=(0, 3600))
    _send(store, "q", b"1")
    queue = store.queue("q")
    (held,) = queue.receive()
    held.nack(50)
    assert queue.stats().delayed == 1
    clock.pass_seconds(51)
    (held,) = queue.receive()
    assert held.delivery_count == 2
    held.nack()  # the second wait
    assert queue.receive() == []
    (row,) = queue.state().to_pylist()
    assert (row["state"], row["delivery_count"]) == ("delayed", 2)
    assert row["available_at"] > datetime.now(UTC) + timedelta(minutes=50)


def test_who_waits_is_woken_by_a_send(store: kmq.Store):
    store.create_queue("q")
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.extend(store.queue("q").receive(timeout=None)))
    waiting.start()
    _send(store, "q", b"now")
    waiting.join(30)
    assert _values(got) == [b"now"]


def test_who_waits_ends_when_the_queue_is_closed(store: kmq.Store):
    store.create_queue("q")
    queue = store.queue("q")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            queue.receive(timeout=None)
        except kmq.ClosedError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    queue.close()
    queue.close()
    waiting.join(30)
    assert len(errors) == 1
    for call in (queue.receive, queue.stats, queue.state, lambda: queue.ack([])):
        with pytest.raises(kmq.ClosedError):
            call()


def test_a_delayed_record_comes_when_it_is_due_whatever_was_sent_later(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q")
    _send(store, "q", b"later", delay=20)
    _send(store, "q", b"years", deliver_at=datetime(2090, 1, 1, tzinfo=UTC))
    _send(store, "q", b"now")
    queue = store.queue("q")
    assert _values(queue.receive(9)) == [b"now"]
    assert queue.stats().delayed == 2
    clock.pass_seconds(19.9)
    assert _values(queue.receive(9, timeout=None)) == [b"later"]
    assert queue.receive(9) == []


def test_an_expired_record_is_handed_to_nobody_but_may_be_answered_by_who_has_it(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q", lock_timeout=3600)
    in_a_minute = datetime.now(UTC) + timedelta(minutes=1)
    _send(store, "q", b"held", b"too old", expires_at=in_a_minute)
    queue = store.queue("q")
    (held,) = queue.receive()
    assert held.value == b"held"
    clock.pass_seconds(60)
    assert queue.receive() == []
    assert queue.stats().expired == 1
    held.ack()
    assert queue.stats().acked == 1


def test_higher_priorities_come_first_and_each_in_its_order(store: kmq.Store):
    store.create_queue("q")
    for value, priority in ((b"a", None), (b"b", 9), (b"c", 0), (b"d", 9), (b"e", 4), (b"f", 5)):
        _send(store, "q", value, priority=priority)
    assert _values(store.queue("q").receive(9)) == [b"b", b"d", b"f", b"a", b"e", b"c"]


def test_priorities_are_refused_where_the_order_is_another_one(store: kmq.Store):
    store.create_queue("q", order="strict")
    with store.producer() as producer, pytest.raises(kmq.InvalidRequestError, match="priority"):
        producer.send_to_queue("q", b"1", priority=5).result()


def test_a_record_that_nobody_had_can_be_taken_back(store: kmq.Store):
    store.create_queue("q")
    one, two, three = _send(store, "q", b"1", b"2", b"3")
    (late,) = _send(store, "q", b"late", delay=3600)
    queue = store.queue("q")
    assert _values(queue.receive()) == [b"1"]
    assert queue.recall(two)
    assert not queue.recall(two)
    assert not queue.recall(one)
    assert queue.recall(late)
    assert _values(queue.receive(9)) == [b"3"]
    assert not queue.recall(three)
    assert queue.stats().delayed == 0


def test_arrow_has_the_same_records_and_acknowledges_any_of_them(store: kmq.Store):
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        for n in range(100):
            producer.send("t", b"%d" % n, key=b"%d" % n)
    store.create_queue("q", topics=["t"], lock_timeout=60)
    _send(store, "q", b"own")
    queue = store.queue("q")
    table = queue.receive_arrow(80)
    assert table.num_rows == 80
    queue.ack(table.slice(0, 0))
    queue.ack(table.take(list(range(0, 80, 2))[::-1]))
    queue.ack(table.take(list(range(1, 80, 2))).to_batches()[0])
    assert queue.stats().acked == 80
    with pytest.raises(kmq.LeaseExpiredError):
        queue.ack(table.slice(3, 1))
    rest = queue.receive_arrow()
    values = table["value"].to_pylist() + rest["value"].to_pylist()
    assert sorted(values) == sorted([b"%d" % n for n in range(100)] + [b"own"])
    assert queue.receive_arrow().num_rows == 0


def test_arrow_of_nothing_is_a_table_without_rows_that_has_the_same_columns(store: kmq.Store):
    store.create_topic("typed", schema=pa.schema([("n", pa.int64())]))
    with store.producer() as producer:
        producer.send("typed", {"n": 5}).result()
    for topics, first in (([], "key"), (["typed"], "n")):
        name = store.create_queue(f"of-{first}", topics=topics).name
        _send(store, name, b"own")
        queue = store.queue(name)
        tables = [queue.receive_arrow(), queue.receive_arrow(), queue.receive_arrow(timeout=0.05)]
        assert first in tables[-1].schema.names
        assert tables[-1].num_rows == 0
        assert tables[-1].schema in [table.schema for table in tables[:-1]]
        for table in tables:
            queue.ack(table)
        assert queue.stats().acked == sum(table.num_rows for table in tables) > 0


def test_arrow_of_another_queue_is_refused(store: kmq.Store):
    for name in ("a", "b"):
        store.create_queue(name)
        _send(store, name, b"1")
    table = store.queue("a").receive_arrow()
    with pytest.raises(kmq.InvalidRequestError, match="another queue"):
        store.queue("b").ack(table)
    with pytest.raises(kmq.InvalidRequestError, match="_delivery"):
        store.queue("a").ack(table.select(["value"]))
    for made_up in (["short"], [7], [None], [[b"x"]]):
        with pytest.raises(kmq.InvalidRequestError, match="column '_delivery'"):
            store.queue("a").ack(pa.table({"_delivery": made_up}))


def test_one_table_has_records_of_one_schema_and_the_others_stay(store: kmq.Store):
    store.create_topic("typed", schema=pa.schema([("n", pa.int64())]))
    store.create_queue("q", topics=["typed"])
    with store.producer() as producer:
        producer.send("typed", {"n": 5})
    _send(store, "q", b"own")
    queue = store.queue("q")
    tables = [queue.receive_arrow(), queue.receive_arrow()]
    assert sorted(tuple(table.schema.names[:1]) for table in tables) == [("key",), ("n",)]
    for table in tables:
        queue.ack(table)
    assert queue.stats().acked == 2


def test_state_has_a_row_for_each_unfinished_record(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        for n in range(3):
            producer.send("t", b"%d" % n)
    _send(store, "q", b"x", delay=60, priority=7)
    queue = store.queue("q")
    held = queue.receive(2)
    held[0].ack()
    rows = {(row["topic"], row["offset"]): row for row in queue.state().to_pylist()}
    assert set(rows) == {("t", 1), ("t", 2), (None, 0)}
    assert rows["t", 1]["state"] == "locked"
    assert rows["t", 1]["available_at"] == held[1].locked_until
    assert rows["t", 2]["state"] == "ready"
    assert rows["t", 2]["available_at"] is None
    assert (rows[None, 0]["state"], rows[None, 0]["priority"]) == ("delayed", 7)


def test_what_is_finished_goes_from_the_queues_own_log_and_all_else_stays(store: kmq.Store):
    store.create_queue("q", lock_timeout=60)
    _send(store, "q", *(b"%d" % n for n in range(10)))
    queue = store.queue("q")
    held = queue.receive(6)
    queue.ack(held[:3])
    queue.ack(held[4:])
    store.maintain()
    own = store.log.refresh().topic("queue:q").partition(0)
    assert (own.start, own.end) == (3, 10)
    held[3].nack(0)
    assert _values(queue.receive(10)) == [b"3", b"6", b"7", b"8", b"9"]
    assert queue.stats().locked == 5


def test_nothing_is_lost_or_comes_again_when_the_store_is_opened_from_a_checkpoint(tmp_path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        store.create_queue("q", lock_timeout=3600)
        _send(store, "q", *(b"%d" % n for n in range(6)))
        _send(store, "q", b"later", delay=3600)
        queue = store.queue("q")
        held = queue.receive(3)
        held[0].ack()
        held[1].nack(3600)
        store.checkpoint()
        before, stats = queue.state(), queue.stats()
    with kmq.open(tmp_path / "store", durability="os") as store:
        queue = store.queue("q")
        assert queue.state() == before
        assert queue.stats() == stats
        assert _values(queue.receive(10)) == [b"3", b"4", b"5"]


def test_arrow_data_is_sent_to_a_queue_whole(store: kmq.Store):
    store.create_queue("q")
    with store.producer() as producer:
        sent = producer.send_arrow_to_queue("q", pa.table({"value": [b"1", b"2"]})).result(10)
    assert (sent.topic, sent.rows, sent.offsets) == (None, 2, {0: (0, 2)})
    assert [each.value for each in store.queue("q").receive(9)] == [b"1", b"2"]
