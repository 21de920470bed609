"""Records that are held ahead when a program ends: none is delayed, or a dead letter, by that."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_spark.client.queues import ahead as queue_ahead
from tests.support.clock import Clock
from tests.support.processes import exit_codes, start_python
from tests.support.threads import no_more_threads

#: More than it takes to be fast, and to hold some ahead.
FAST, RECORDS = 40, 1_000

_PROGRAM = """
import os, sys
import kmq_spark as kmq
queue = kmq.open(sys.argv[1], durability="os").queue("q")
for _ in range(int(sys.argv[3])):
    (held,) = queue.receive()
    held.ack()
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
if sys.argv[2] == "raise":
    raise ValueError
if sys.argv[2] == "fork":
    child = os.fork()
    os.waitpid(child, 0) if child else sys.exit()
    (held,) = queue.receive()
    held.ack()
"""


def _ends(url: Path, how: str, count: int = FAST) -> int:
    (code,) = exit_codes([start_python(_PROGRAM, str(url), how, str(count))])
    return code


def _fill(store: kmq.Store, count: int = RECORDS, **settings: float) -> None:
    store.create_queue("q", **settings)
    with store.producer() as producer:
        for n in range(count):
            producer.send_to_queue("q", b"%d" % n)


@pytest.mark.parametrize(("how", "code"), [("end", 0), ("raise", 1), ("fork", 0)])
def test_a_program_that_ends_gives_back_what_it_held_ahead(tmp_path: Path, how: str, code: int):
    with kmq.open(tmp_path / "store", durability="os") as store:
        _fill(store, lock_timeout=3600)
        assert _ends(tmp_path / "store", how) == code
        stats, done = store.queue("q").stats(), FAST + (how == "fork")
    assert (stats.locked, stats.acked, stats.delivered) == (0, done, done)
    assert stats.ready == RECORDS - done


@pytest.mark.parametrize("most", [1, 2])
def test_what_nobody_got_is_no_dead_letter_however_often_receivers_are_killed(
    tmp_path: Path, most: int
):
    takes = (300, 60, 20)
    clock, url = Clock(), tmp_path / "store"
    with open_store(url, durability="os", environment=clock.environment) as store:
        _fill(store, lock_timeout=3600, max_deliveries=most)
        queue = store.queue("q", prefetch=1)
        for count in takes:  # of what the one before held ahead, some
            assert _ends(url, "kill", count) == -signal.SIGKILL
            clock.pass_seconds(7200)
            store.create_topic(f"t{count}")  # the log's time is the next receiver's
        left = {int(each.value) for each in queue.receive(RECORDS)}
        stats = queue.stats()
    assert (stats.dead, stats.acked) == (0, sum(takes))
    assert len(left) == RECORDS - stats.acked


_CHILD = """
import multiprocessing, sys
import kmq_spark as kmq
from kmq_spark import openmessaging as oms

def work(url):
    store = kmq.open(url, durability="os")
    queue = store.queue("q")
    for _ in range(100):
        (held,) = queue.receive()
        held.ack()
    producer = store.producer(linger=60.0)
    for n in range(1000):
        producer.send("t", b"%d" % n)
    messages = oms.Producer(oms.KeyValue().put("STORE_PATH", url))
    messages.send(messages.create_bytes_message_to_topic("m", b"x"))

def send_more(producer):
    producer.send("t", b"of the parent's producer")

if __name__ == "__main__":
    url, how = sys.argv[1:]
    parents = kmq.open(url, durability="os").producer(linger=60.0)
    context = multiprocessing.get_context(how)
    child = context.Process(target=work, args=(url,))
    child.start()
    child.join()
    if how == "fork" and not child.exitcode:
        child = context.Process(target=send_more, args=(parents,))
        child.start()
        child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("how", ["spawn", "fork", "forkserver"])
def test_a_child_of_multiprocessing_ends_as_any_program(tmp_path: Path, how: str):
    script, url = tmp_path / "child.py", str(tmp_path / "store")
    script.write_text(_CHILD)
    with kmq.open(url, durability="os") as store:
        _fill(store, lock_timeout=3600)
        store.create_topic("t")
        done = subprocess.run([sys.executable, script, url, how], timeout=240, check=False)
        assert done.returncode == 0
        stats = store.queue("q").stats()
        assert (stats.locked, stats.acked, stats.delivered) == (0, 100, 100)
        assert store.offsets("t") == {0: (0, 1_001 if how == "fork" else 1_000)}
        assert store.offsets("m") == {0: (0, 1)}


_DAEMON = """
import sys, threading
import kmq_spark as kmq
from kmq_spark.client.queues import ahead as queue_ahead
queue_ahead.PATIENCE = 1e6  # however slow the machine is, it counts as fast
fast = threading.Event()

def receive():
    queue = kmq.open(sys.argv[1], durability="os").queue("q")
    while True:
        for held in queue.receive(timeout=1):
            held.ack()
        if queue._ahead._ready:
            fast.set()

threading.Thread(target=receive, daemon=True).start()
fast.wait()
"""


def test_where_no_more_threads_can_be_had_nothing_is_held_ahead(tmp_path: Path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        _fill(store)
        queue = store.queue("q")
        with no_more_threads():
            for _ in range(FAST):
                (held,) = queue.receive()
                held.ack()
        with kmq.open(tmp_path / "store", durability="os") as other:
            assert other.queues()[0].stats.ready == RECORDS - FAST
        assert queue.stats().acked == FAST


def test_a_thread_that_receives_while_the_program_ends_holds_nothing_ahead(tmp_path: Path):
    with kmq.open(tmp_path / "store", durability="os") as store:
        store.create_queue("q", lock_timeout=3600)
        with store.producer() as producer:
            for _ in range(20):
                table = pa.table({"value": [b"x"] * 1_000})
                producer.send_arrow_to_queue("q", table)
        assert exit_codes([start_python(_DAEMON, str(tmp_path / "store"))]) == [0]
        assert store.queue("q").stats().locked <= 1  # what the thread had in hand


def test_what_is_given_back_meanwhile_is_not_held_ahead_on_its_last_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_ahead, "PATIENCE", 1e6)
    monkeypatch.setattr(queue_ahead.Ahead, "_for_ahead", lambda *of: of[-1])  # as it was then
    with kmq.open(tmp_path / "store", durability="os") as store:
        _fill(store, 4 * FAST, lock_timeout=3600, max_deliveries=2)
        other, queue = store.queue("q", prefetch=1), store.queue("q")
        for each in other.receive(4 * FAST):
            each.nack(0) if int(each.value) % 2 else each.ack()
        with store.producer() as producer:
            for n in range(FAST):
                producer.send_to_queue("q", b"%d" % n)
        counts = set()
        for _ in range(2 * FAST):
            (held,) = queue.receive()
            counts.update(each.delivery_count for each in queue._ahead._ready)
            held.ack()
    assert counts <= {1}


def test_what_is_held_ahead_of_one_topic_is_given_back_though_another_topic_went(tmp_path: Path):
    topics = [f"t{number}" for number in range(8)]
    with kmq.open(tmp_path / "store", durability="os") as store:
        for topic in topics:
            store.create_topic(topic)
        store.create_queue("q", topics=topics, lock_timeout=3600)
        with store.producer() as producer:
            for topic in topics:
                producer.send_batch(topic, [b"-"] * 10)
        with store.queue("q") as queue:
            for _ in range(32):  # by now it holds more ahead than there are of one topic
                (last,) = queue.receive()
                last.ack()
            store.unbind_queue("q", [last.topic])
        assert store.queue("q").stats().locked == 0


def test_of_several_that_are_given_back_those_that_were_lost_keep_no_other_one_locked(
    store: kmq.Store,
):
    _fill(store, lock_timeout=3600)
    queue = store.queue("q", prefetch=1)
    held = queue.receive(10)
    held[3].ack()
    queue._give_back(held)
    assert (queue.stats().ready, queue.stats().locked) == (RECORDS - 1, 0)


@pytest.mark.parametrize(("lock", "is_ahead"), [(0.9, False), (1.0, True)])
def test_no_record_with_a_short_lock_waits_for_its_receiver(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, lock: float, is_ahead: bool
):
    monkeypatch.setattr(queue_ahead, "PATIENCE", 3600)
    with open_store(store.url, durability="os", environment=store.log.environment) as quick:
        _fill(quick, lock_timeout=lock)
        queue = quick.queue("q")
        for _ in range(FAST):
            queue.receive()[0].ack()
        others = quick.queue("q").receive(RECORDS)
        assert (len(others) < RECORDS - FAST) == is_ahead
