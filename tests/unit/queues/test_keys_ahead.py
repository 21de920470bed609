"""Taking record after record of a queue that goes by keys: of each key one is held ahead.

Finds: two records of a key in different hands, an order that is broken, and a commit per call.
"""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_spark.client.queues import ahead
from tests.support.clock import Clock
from tests.support.processes import exit_codes, start_python
from tests.unit.queues.test_slips import DIES

KEYS, RECORDS = 50, 1_000
#: More calls than it takes to be fast.
FAST = 40


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def store(url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[kmq.Store]:
    """Its queue has the numbers from 0 on, by their last digits; nobody counts as slow."""
    monkeypatch.setattr(ahead, "PATIENCE", 1e6)
    monkeypatch.setattr(ahead, "_PAUSE", 1e6)
    with open_store(url, durability="os", environment=clock.environment) as here:
        here.create_queue("q", order="key", lock_timeout=3_600)
        _send(here, range(RECORDS))
        yield here


def _send(store: kmq.Store, numbers: range) -> None:
    with store.producer() as producer:
        for n in numbers:
            producer.send_to_queue("q", b"%d" % n, key=b"%d" % (n % KEYS))


def _fast(store: kmq.Store) -> kmq.Queue:
    """A receiver that holds some ahead."""
    queue = store.queue("q")
    for _ in range(FAST):
        queue.ack(queue.receive())
    return queue


def _rest(queue: kmq.Queue) -> list[int]:
    """The numbers of all records that can be had, received and acknowledged one by one."""
    found = []
    while held := queue.receive():
        found.append(int(held[0].value))
        held[0].ack()
    return found


def _in_order(numbers: list[int]) -> bool:
    """Whether the numbers of each key ascend."""
    by_key = defaultdict[int, list[int]](list)
    for n in numbers:
        by_key[n % KEYS].append(n)
    return all(each == sorted(each) for each in by_key.values())


def test_record_after_record_takes_few_commits_and_keeps_the_order(store: kmq.Store):
    before, found = store.log.refresh().lsn, _rest(store.queue("q"))
    assert sorted(found) == list(range(RECORDS))
    assert _in_order(found)
    assert store.log.refresh().lsn - before < RECORDS // 4


def test_one_key_alone_takes_no_more_commits_than_without_holding_ahead(store: kmq.Store):
    store.create_queue("one", order="key")
    with store.producer() as producer:
        for n in range(100):
            producer.send_to_queue("one", b"%d" % n, key="k")
    before = store.log.refresh().lsn
    assert _rest(store.queue("one")) == list(range(100))
    assert store.log.refresh().lsn - before <= 2 * 100 + 1  # the look at their keys


def test_nobody_gets_a_record_of_a_key_while_somebody_has_one(store: kmq.Store):
    queue, other = _fast(store), store.queue("q")
    mine = [each for _ in range(2 * KEYS) for each in queue.receive()]
    keys = [int(each.value) % KEYS for each in mine]
    assert sorted(keys) == sorted({*keys})
    assert len(keys) == KEYS
    assert other.receive(RECORDS) == []


def test_a_record_that_failed_comes_again_before_later_ones_of_its_key(store: kmq.Store):
    queue = _fast(store)
    (failed,) = queue.receive()
    failed.nack(0)
    found = _rest(queue)
    assert int(failed.value) in found
    assert _in_order(found)
    assert len(found) == RECORDS - FAST


def test_a_call_for_several_gets_several_of_a_key(store: kmq.Store):
    queue = store.queue("q")
    while len(held := queue.receive(10)) == 10:
        queue.ack(held)
        assert _in_order([int(each.value) for each in held])
    assert queue.stats().acked == RECORDS


def test_threads_and_handles_never_have_two_of_a_key_at_once(store: kmq.Store):
    busy, found, lock = set[int](), list[int](), threading.Lock()

    def work(queue: kmq.Queue) -> None:
        while held := queue.receive(timeout=1.0):
            n = int(held[0].value)
            with lock:
                assert n % KEYS not in busy, "two have a record of this key"
                busy.add(n % KEYS)
                found.append(n)
            with lock:
                busy.remove(n % KEYS)
            held[0].ack()

    shared = store.queue("q")
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, q) for q in (shared, shared, shared, store.queue("q"))]:
            each.result(120)
    assert sorted(found) == list(range(RECORDS))
    assert _in_order(found)


def test_who_is_killed_leaves_each_key_where_it_was(
    store: kmq.Store, url: str, clock: Clock, tmp_path: Path
):
    acked = tmp_path / "acked"
    (code,) = exit_codes([start_python(DIES, url, str(FAST + 7), str(acked))])
    assert code == -signal.SIGKILL
    done = list(map(int, acked.read_text().split()))
    clock.pass_seconds(3_601)
    found = _rest(store.queue("q"))
    assert sorted(done + found) == list(range(RECORDS)), "lost, or had again"
    assert _in_order(done + found)
