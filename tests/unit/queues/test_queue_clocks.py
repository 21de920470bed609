"""Queues where the log's time is ahead of a receiver's clock, since another one's had jumped.

Finds: seconds that count from a clock that is behind, and so are over when they begin, and locks
that are over for everybody but the receiver that has them. And a receiver that sleeps on when its
clock was put forward, and time that stands still until it has caught up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_spark.client.queues import ahead as queue_ahead
from kmq_storage import limits
from kmq_storage.environment import SYSTEM
from tests.support.clock import Clock


def _jumped(url: Path) -> kmq.Store:
    """A store in the hands of somebody whose clock is an hour ahead."""
    ahead = replace(SYSTEM, now_ns=lambda: SYSTEM.now_ns() + 3600 * 10**9)
    return open_store(url, durability="os", environment=ahead)


@pytest.fixture
def late(tmp_path: Path) -> Iterator[kmq.Store]:
    """A store whose newest commit is of an hour that has not come, with a record in queue `q`."""
    url = tmp_path / "store"
    with _jumped(url) as jumped:
        jumped.create_queue("q", max_deliveries=9)
        with jumped.producer() as producer:
            producer.send_to_queue("q", b"1").result()
    with kmq.open(url, durability="os") as store:
        yield store


def test_an_extended_lock_is_held(late: kmq.Store):
    queue = late.queue("q")
    (held,) = queue.receive()
    held.extend(20)
    assert queue.receive() == []
    held.ack()


def test_who_failed_waits(late: kmq.Store):
    queue = late.queue("q")
    queue.receive()[0].nack(20)
    assert (queue.receive(), queue.stats().delayed) == ([], 1)


def test_a_delayed_record_is_not_there_yet(late: kmq.Store):
    with late.producer() as producer:
        producer.send_to_queue("q", b"2", delay=20).result()
    assert [each.value for each in late.queue("q").receive(9)] == [b"1"]


@pytest.fixture
def holding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[kmq.Store, kmq.Queue, kmq.Delivery]]:
    """A receiver that holds some ahead, and a record of it, when the log's time leaps an hour."""
    monkeypatch.setattr(queue_ahead, "PATIENCE", 1e6)
    url = tmp_path / "store"
    with kmq.open(url, durability="os") as store, store.queue(_filled(store)) as queue:
        for _ in range(40):
            queue.receive()[0].ack()
        (held,) = queue.receive()
        with _jumped(url) as jumped:
            jumped.create_topic("an-hour-later")
        store.topics()
        yield store, queue, held


def _filled(store: kmq.Store) -> str:
    store.create_queue("q")
    with store.producer() as producer:
        for n in range(300):
            producer.send_to_queue("q", b"%d" % n)
    return "q"


def test_what_is_held_ahead_is_handed_out_by_one_of_two_when_the_lock_is_over_by_the_logs_time(
    holding: tuple[kmq.Store, kmq.Queue, kmq.Delivery],
):
    store, queue, held = holding
    others = {each.value for each in store.queue("q").receive(300)}
    assert held.value in others
    assert others.isdisjoint(each.value for each in queue.receive(300))


def test_an_answer_is_late_by_the_logs_time(
    holding: tuple[kmq.Store, kmq.Queue, kmq.Delivery],
):
    _, queue, held = holding
    with pytest.raises(kmq.LeaseExpiredError):
        held.ack()
    assert queue.stats().acked == 40


def test_locks_end_and_delays_are_over_long_before_the_clocks_have_caught_up(tmp_path: Path):
    far = replace(SYSTEM, now_ns=lambda: SYSTEM.now_ns() + 70 * 365 * 86_400 * 10**9)
    with open_store(tmp_path / "store", durability="os", environment=far) as jumped:
        jumped.create_queue("q", lock_timeout=600, backoff=(500,))
    passed = 0.0
    behind = replace(SYSTEM, monotonic=lambda: SYSTEM.monotonic() + passed)
    with (
        open_store(tmp_path / "store", durability="os", environment=behind) as store,
        store.producer() as producer,
    ):
        queue = store.queue("q")
        for value, delay in ((b"held", None), (b"failed", None), (b"delayed", 500)):
            producer.send_to_queue("q", value, delay=delay).result()
        queue.receive(2)[1].nack()
        assert queue.receive() == []
        passed = 1_300.0  # the log's time goes on half as fast
        found = [queue.receive(timeout=10) for _ in range(3)]
    assert {each.value for some in found for each in some} == {b"held", b"failed", b"delayed"}


_Waits = Callable[[], list[kmq.Delivery] | list[kmq.KeyedDelivery]]


def _for_a_delayed_record(store: kmq.Store) -> _Waits:
    store.create_queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"v", delay=600)
    return lambda: store.queue("q").receive(timeout=60)


def _for_a_held_message(store: kmq.Store) -> _Waits:
    inboxes = store.keyed_queues("k")
    inboxes.put_batch(["a"], [b"v"])
    assert inboxes.receive("a", lock_timeout=600)
    return lambda: inboxes.receive("a", timeout=60)


@pytest.mark.parametrize("waits", [_for_a_delayed_record, _for_a_held_message])
def test_who_waits_for_a_record_gets_it_soon_after_the_clock_was_put_forward(
    store: kmq.Store,
    clock: Clock,
    waits: Callable[[kmq.Store], _Waits],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "CLOCK_RECHECK", 0.05)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(waits(store))
        time.sleep(0.3)  # so that it waits
        clock.pass_seconds(601)
        assert [each.value for each in waiting.result(10)] == [b"v"]


def test_a_lock_lasts_as_long_as_was_asked_and_not_two_seconds_longer(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q", lock_timeout=60)
    with store.producer() as producer:
        producer.send_to_queue("q", b"1")
    queue = store.queue("q")
    (held,) = queue.receive()
    for deliveries in (2, 3):
        clock.pass_seconds(59)
        assert queue.receive() == []
        clock.pass_seconds(2)
        (held,) = queue.receive()
        assert held.delivery_count == deliveries
    held.extend(100)
    clock.pass_seconds(99)
    assert queue.receive() == []
    clock.pass_seconds(2)
    assert [each.delivery_count for each in queue.receive()] == [4]
