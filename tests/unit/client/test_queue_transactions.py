"""Queues in transactions: acks and sends that are one commit with everything else.

Finds: an ack without what was made of the record, or the other way round, a late ack that is
stored, and schedules that are those of other records.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.sending.beside import _last_words
from kmq_storage import limits
from kmq_storage.format.queue_entries import Run
from tests.unit.client.stored import aborted, lsn, values


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topic `done` and queue `jobs` with three records."""
    store.create_topic("done")
    store.create_queue("jobs")
    with store.producer() as producer:
        for number in range(3):
            producer.send_to_queue("jobs", b"%d" % number)
    return store


def test_a_record_is_acknowledged_with_what_was_made_of_it(shop: kmq.Store):
    shop.create_queue("next")
    with shop.producer() as producer, shop.queue("jobs") as queue:
        one, two, three = queue.receive(3)
        before = lsn(shop)
        with producer.transaction() as tx:
            tx.send("done", one.value)
            sent = tx.send_to_queue("next", b"follow")
            table = tx.send_arrow_to_queue("next", pa.table({"value": [b"up"]}))
            tx.ack(one)
            tx.ack([two, one])
        assert lsn(shop) == before + 1
        stats = queue.stats()
        assert (stats.ready, stats.locked, stats.acked) == (0, 1, 2)
        assert (sent.result().topic, sent.result().offset) == (None, 0)
        three.ack()
        assert table.result().offsets == {0: (1, 2)}
        assert [held.value for held in shop.queue("next").receive(9)] == [b"follow", b"up"]
    assert values(shop, "done") == [b"0"]


def test_an_abort_acknowledges_nothing(shop: kmq.Store):
    with shop.producer() as producer, shop.queue("jobs") as queue:
        (held,) = queue.receive()
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            tx.ack(held)
            tx.send_to_queue("jobs", b"lost")
            raise ZeroDivisionError
        stats = queue.stats()
        assert (stats.ready, stats.locked, stats.acked) == (2, 1, 0)
        held.ack()


def test_what_a_transaction_acknowledges_makes_room_for_what_it_sends(store: kmq.Store):
    store.create_queue("full", capacity=2)
    with store.producer() as producer, store.queue("full") as queue:
        for value in (b"1", b"2"):
            producer.send_to_queue("full", value).result(10)
        one, two = queue.receive(2)
        with (
            pytest.raises(kmq.TransactionAbortedError, match="is full"),
            producer.transaction() as tx,
        ):
            tx.ack(one)
            for value in (b"3", b"4"):
                tx.send_to_queue("full", value)
        with producer.transaction() as tx:
            tx.ack(one)
            tx.send_to_queue("full", b"3")
        assert [held.value for held in queue.receive(9)] == [b"3"]
        two.ack()


def test_a_late_ack_aborts_all(shop: kmq.Store):
    shop.create_queue("short", lock_timeout=0.001)
    with shop.producer() as producer, shop.queue("short") as queue:
        producer.send_to_queue("short", b"v").result(10)
        (held,) = queue.receive(timeout=10)
        again: list[Any] = []
        while not again:
            again = queue.receive(timeout=10)
        with pytest.raises(kmq.TransactionAbortedError) as raised, producer.transaction() as tx:
            future = tx.send("done", b"v")
            tx.ack(held)
        assert isinstance(raised.value.__cause__, kmq.LeaseExpiredError)
        aborted(future, kmq.LeaseExpiredError)
    assert values(shop, "done") == []


@pytest.mark.parametrize("memory", [1_000, limits.TRANSACTION_MEMORY_BYTES])
def test_schedules_are_those_of_their_records_however_many_went_into_files(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch, memory: int
):
    monkeypatch.setattr(limits, "TRANSACTION_MEMORY_BYTES", memory)
    shop.create_queue("timed")
    with shop.producer() as producer, producer.transaction() as tx:
        for number in range(30):
            plain = number % 3
            tx.send_to_queue("timed", b"%d" % number + b"." * 90, delay=3_600 if plain else None)
    with shop.queue("timed") as queue:
        held = queue.receive(100)
        assert [int((each.value or b"").rstrip(b".")) for each in held] == list(range(0, 30, 3))
        assert queue.stats().delayed == 20


def test_what_is_no_delivery_is_refused_at_once(shop: kmq.Store):
    with shop.producer() as producer, producer.transaction() as tx:
        for wrong in ([b"1"], [None], [shop.consumer()]):
            with pytest.raises(kmq.InvalidRequestError, match="takes deliveries"):
                tx.ack(wrong)  # type: ignore[arg-type]
        tx.send("done", b"good")
    assert values(shop, "done") == [b"good"]


def test_a_delayed_message_behind_megabytes_of_others_is_the_delayed_one(shop: kmq.Store):
    shop.create_queue("big")
    with shop.producer() as producer:
        with producer.transaction() as tx:
            for _ in range(5):
                tx.send_to_queue("big", b"." * 1024 * 1024)
            tx.send_to_queue("big", b"late", delay=9_999)
        stats = shop.queue("big").stats()
    assert (stats.ready, stats.delayed) == (5, 1)
    with shop.queue("big") as queue:
        assert {held.value for held in queue.receive(10)} == {b"." * 1024 * 1024}


def test_rows_of_a_table_are_acknowledged_with_what_was_made_of_them(shop: kmq.Store):
    with shop.producer() as producer, shop.queue("jobs") as queue:
        table = queue.receive_arrow()
        before = lsn(shop)
        with producer.transaction() as tx:
            tx.send("done", b"all but the last")
            tx.ack(table.slice(0, 2))
            tx.ack(table.slice(1, 1).to_batches()[0])
            tx.ack(table.slice(0, 0))
        assert lsn(shop) == before + 1
        assert (queue.stats().acked, queue.stats().locked) == (2, 1)
        with pytest.raises(kmq.TransactionAbortedError) as raised, producer.transaction() as tx:
            tx.send("done", b"late")
            tx.ack(table)
        assert isinstance(raised.value.__cause__, kmq.LeaseExpiredError)
        assert values(shop, "done") == [b"all but the last"]
        assert (queue.stats().acked, queue.stats().locked) == (2, 1)
        with (
            producer.transaction() as tx,
            pytest.raises(kmq.InvalidRequestError, match="_delivery"),
        ):
            tx.ack(table.drop_columns(["_delivery"]))


def test_of_rows_that_were_received_twice_the_later_delivery_is_acknowledged():
    topic = b"t" * 16
    twice = [Run(topic, 0, 0, 5, 1), Run(topic, 0, 2, 2, 2), Run(topic, 1, 0, 3, 1)]
    assert _last_words(twice) == [
        Run(topic, 0, 0, 2, 1),
        Run(topic, 0, 2, 2, 2),
        Run(topic, 0, 4, 1, 1),
        Run(topic, 1, 0, 3, 1),
    ]


def test_what_another_store_handed_out_is_refused_by_its_name(shop: kmq.Store):
    with kmq.open("memory://another") as other:
        other.create_queue("theirs")
        with other.producer() as producer:
            producer.send_to_queue("theirs", b"1")
            producer.send_to_queue("theirs", b"2")
        (one,), table = other.queue("theirs").receive(), other.queue("theirs").receive_arrow()
        with shop.producer() as producer:
            for held, says in ((one, "queue theirs .* this store"), (table, "this store")):
                refused = pytest.raises(kmq.TransactionAbortedError, match=says)
                with refused, producer.transaction() as tx:
                    tx.ack(held)
        assert other.queue("theirs").stats().acked == 0
