"""Threads that share the handle of a queue, and those who take a few records at a time.

Finds: a commit per call where one per thousand records does, and threads that take from each other
what one of them has just got.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.queues import ahead as queue_ahead
from kmq_spark.client.queues import queue as module

RECORDS, THREADS = 4_000, 8


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kmq.Queue]:
    """One with the numbers from 0 on, of which nobody counts as slow."""
    monkeypatch.setattr(queue_ahead, "PATIENCE", 1e6)
    monkeypatch.setattr(queue_ahead, "_PAUSE", 1e6)
    with kmq.open(tmp_path / "store", durability="os") as store:
        store.create_queue("q")
        with store.producer() as producer:
            for n in range(RECORDS):
                producer.send_to_queue("q", b"%d" % n)
        with store.queue("q") as queue:
            yield queue


def _commits(queue: kmq.Queue) -> int:
    return queue._log.refresh().lsn


@pytest.mark.parametrize("size", [2, 7, 30, 100])
def test_records_that_are_taken_a_few_at_a_time_take_few_commits(queue: kmq.Queue, size: int):
    before = _commits(queue)
    while held := queue.receive(size):
        queue.ack(held)
    assert queue.stats().acked == RECORDS
    plain = 2 * queue_ahead._PROOF  # who is not known to be fast makes two for each call
    doubling = 2 * RECORDS.bit_length()
    assert _commits(queue) - before <= plain + doubling + RECORDS // (queue_ahead.GROUPS * size)


def test_who_finds_nothing_in_hand_waits_for_the_thread_that_has_just_got_some(
    queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    for _ in range(2 * queue_ahead._PROOF):
        queue.ack(queue.receive())
    queue._ahead.settle()
    reads, may_go_on = module.deliveries_of, threading.Event()

    def read_slowly(*arguments: Any, **options: Any) -> list[kmq.Delivery]:
        found = reads(*arguments, **options)
        may_go_on.wait(30)
        return found

    monkeypatch.setattr(module, "deliveries_of", read_slowly)
    before = _commits(queue)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(queue.receive)
        while not queue._ahead._is_sorting:
            time.sleep(0.001)
        second = pool.submit(queue.receive, timeout=30.0)
        while not queue._ahead._sleepers._bells:
            time.sleep(0.001)
        may_go_on.set()
        found = [int(each.value) for held in (first, second) for each in held.result(30)]
    assert len({*found}) == 2
    assert _commits(queue) - before == 1


def test_threads_that_share_a_handle_get_each_record_once(queue: kmq.Queue):
    def take_all(_: int) -> list[int]:
        found = []
        while held := queue.receive(5):
            queue.ack(held)
            found += [int(each.value) for each in held]
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        found = sorted(number for some in pool.map(take_all, range(THREADS)) for number in some)
    assert found == list(range(RECORDS))
    stats = queue.stats()
    assert (stats.acked, stats.delivered) == (RECORDS, RECORDS)


def test_a_thread_that_was_interrupted_with_what_it_got_keeps_the_others_waiting_for_a_moment(
    queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_ahead, "_SORTING", 0.01)
    queue._ahead._is_sorting = True
    assert len(queue.receive()) == 1


def test_a_closed_handle_hands_out_nothing_that_it_could_not_give_back(
    queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    for _ in range(2 * queue_ahead._PROOF):
        queue.ack(queue.receive())
    assert queue._ahead.has_some()
    monkeypatch.setattr(queue._ahead, "close", lambda: None)  # the disk is full, say
    queue.close()
    with pytest.raises(kmq.ClosedError):
        queue.receive()


def _made_fast(queue: kmq.Queue) -> None:
    for _ in range(2 * queue_ahead._PROOF):
        queue.ack(queue.receive())


def test_who_finds_that_others_took_all_that_was_in_hand_looks_on(
    queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    _made_fast(queue)
    ahead, takes = queue._ahead, queue._ahead.take
    robberies: list[list[kmq.Delivery]] = []

    def take(most: int) -> list[kmq.Delivery]:
        return [] if not robberies else takes(most)

    def look() -> bool:  # and others take all right after the look
        some = looks()
        if not robberies and some:
            robberies.append(takes(10_000))
        return some

    looks = ahead.has_some
    assert looks()
    monkeypatch.setattr(ahead, "take", take)
    monkeypatch.setattr(ahead, "has_some", look)
    assert len(queue.receive(timeout=0.0)) == 1


def test_who_is_told_that_another_thread_was_faster_looks_again_before_it_sleeps(
    queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    _made_fast(queue)
    ahead, acquires = queue._ahead, queue._ahead.acquire
    ahead.settle()
    robberies: list[list[kmq.Delivery]] = []

    def acquire(*arguments: Any, **options: Any) -> Any:
        if robberies:
            return acquires(*arguments, **options)
        robberies.append([])
        robberies.append(queue.receive())  # another thread gets some,
        found = acquires(*arguments, **options)
        robberies.append(ahead.take(10_000))  # and others take the rest of them
        return found

    def sleep(*_: Any) -> None:
        raise AssertionError("sleeps though records are ready")

    monkeypatch.setattr(ahead, "acquire", acquire)
    monkeypatch.setattr(module.handing, "wait_for_more", sleep)
    assert len(queue.receive(timeout=30.0)) == 1


def test_after_a_stop_beyond_the_locks_no_thread_drops_what_another_one_has_just_got(
    queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    _made_fast(queue)
    assert queue._ahead.has_some()
    looks, answered = queue._log.now_us, []

    def look() -> int:  # after a minute, in which another thread begins and ends a call
        if not answered:
            answered.append(None)
            queue.ack(queue.receive())
        return looks() + 60_000_000

    monkeypatch.setattr(queue._log, "now_us", look)
    while held := queue.receive():
        queue.ack(held)
    stats = queue.stats()
    assert (stats.acked, stats.locked) == (RECORDS, 0)


def test_a_store_that_closes_while_a_thread_has_just_got_some_leaves_no_thread(
    queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    _made_fast(queue)
    watch = queue._ahead._watch
    assert watch is not None
    queue._log.close()  # after the handle, which that thread had found open
    monkeypatch.setattr(queue_ahead, "PATIENCE", 0.01)
    queue._ahead._bell.ring()
    watch.join(30)
    assert not watch.is_alive()


@pytest.mark.parametrize("prefetch", [2, 5, 50])
def test_no_more_is_held_ahead_than_was_asked_for(queue: kmq.Queue, prefetch: int):
    url, held = queue._log.files.url, []
    with kmq.open(url, durability="os") as store, store.queue("q", prefetch=prefetch) as asking:
        for _ in range(40):
            (delivery,) = asking.receive()
            delivery.ack()
            with kmq.open(url, read_only=True) as other:
                held.append(other.queues()[0].stats.locked)
    assert 1 < max(held) <= prefetch
