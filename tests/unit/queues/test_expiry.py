"""Records whose time is over: who they are in the way of, and when they are forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_spark.client.queues import ahead as queue_ahead
from kmq_storage.format.queue_entries import RETRY, AcquireEntry, AnswerEntry, LookEntry
from kmq_storage.format.schedule_entry import Schedule
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.rows import PRIORITY
from kmq_storage.model import QueueSettings
from tests.support.clock import Clock


def test_what_expired_takes_no_room_and_is_forgotten_by_who_finds_nothing_else(store: kmq.Store):
    store.create_queue("q", capacity=1)
    past = datetime.now(UTC) - timedelta(seconds=1)
    with store.producer(linger=0) as producer:
        for _ in range(3):
            producer.send_to_queue("q", b"too old", expires_at=past).result()
    assert store.queue("q").receive() == []
    (source,) = store.log.refresh().queue("q").sources.values()
    assert source.rows.live == 0
    before = store.log.refresh().lsn
    assert store.queue("q").receive() == []
    assert store.log.refresh().lsn == before, "there is nothing left to forget"
    assert store.queue("q").stats().expired == 3


def test_what_expired_since_the_last_commit_makes_room_for_a_producer(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q", capacity=2)
    later = datetime.now(UTC) + timedelta(days=1)
    with store.producer(linger=0) as producer:
        producer.send_to_queue("q", b"old", expires_at=later).result()
        producer.send_to_queue("q", b"kept").result()
        with pytest.raises(kmq.QueueFullError):
            producer.send_to_queue("q", b"too many").result()
        clock.pass_seconds(2 * 86_400)
        producer.send_to_queue("q", b"new").result()
        with pytest.raises(kmq.QueueFullError):
            producer.send_to_queue("q", b"too many").result()
    assert [each.value for each in store.queue("q").receive(9)] == [b"kept", b"new"]


def test_and_for_a_transaction(store: kmq.Store, clock: Clock):
    store.create_queue("q", capacity=1)
    with store.producer(linger=0) as producer:
        later = datetime.now(UTC) + timedelta(days=1)
        producer.send_to_queue("q", b"old", expires_at=later).result()
        clock.pass_seconds(2 * 86_400)
        with producer.transaction() as tx:
            tx.send_to_queue("q", b"new")
    assert [each.value for each in store.queue("q").receive(9)] == [b"new"]


@pytest.mark.parametrize("order", ["key", "strict"])
def test_a_failed_record_that_expired_holds_no_other_one_up(order: str):
    queue = Queue(b"q" * 16, "q", QueueSettings(order=order))
    spans = {queue.log_key: (0, 2)}
    queue.apply_schedule(0, [Schedule(0, 0, 50, PRIORITY)])
    queue.apply_look(LookEntry(queue.id, *queue.log_key, 0, 2, ((0, 2),), (7, 7)))
    runs = tuple(queue.take(spans, 1, 10))
    queue.apply_acquire(AcquireEntry(queue.id, 10, 20, 1, "c", runs))
    queue.apply_answer(AnswerEntry(queue.id, RETRY, 15, 1_000, runs))
    assert queue.take(spans, 1, 49) == []
    assert [run.first for run in queue.take(spans, 1, 50)] == [1]


def test_who_holds_records_ahead_hands_out_none_that_expired_meanwhile(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_ahead, "PATIENCE", 1e6)
    later = datetime.now(UTC) + timedelta(hours=1)
    where = str(tmp_path / "store")
    with open_store(where, durability="os", environment=clock.environment) as store:
        store.create_queue("q", lock_timeout=86_400)
        with store.producer() as producer:
            for n in range(100):
                expires = later if n % 2 else None
                producer.send_to_queue("q", b"%d" % n, expires_at=expires)
        queue = store.queue("q")
        taken = []
        for n in range(100):
            if n == 50:
                assert queue._ahead._ready, "there are some in hand"
                clock.pass_seconds(7200)
            for each in queue.receive():
                taken.append(int(each.value))
                each.ack()
        assert taken == [*range(50), *range(50, 100, 2)]
        assert queue.stats() == kmq.QueueStats(0, 0, 0, delivered=75, acked=75, dead=0, expired=25)


def test_the_uniq_of_a_record_that_was_recalled_stays_taken_until_the_window_ends(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q", uniq_window=60.0)
    queue = store.queue("q")
    with store.producer(linger=0) as producer:
        send = partial(producer.send_to_queue, "q", b"1", uniq="x")
        assert queue.recall(send().result())
        assert send().result().duplicate  # perhaps the late retry of the recalled send
        assert queue.receive() == []
        clock.pass_seconds(61)
        assert not send().result().duplicate
    assert len(queue.receive()) == 1
