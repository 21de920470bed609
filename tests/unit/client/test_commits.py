"""Who commits: the producer's thread, or a caller who would only wait for it.

Finds a caller that is kept where it should not be, a callback in a caller's thread, and records
that are lost or stored twice when a signal interrupts a caller that commits.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.sending.acknowledger import Acknowledger
from kmq_spark.client.sending.pending import Pending
from kmq_storage.environment import SYSTEM
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.waking import Bell
from tests.support.memory_bucket import MemoryBucket
from tests.unit.client.stored import values


class _Threads:
    """A partitioner that remembers in which threads it was asked."""

    def __init__(self) -> None:
        self.seen: list[threading.Thread] = []

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        self.seen.append(threading.current_thread())
        return 0


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_who_waits_at_once_commits_in_its_own_thread(tmp_path: Path, durability: str):
    threads = _Threads()
    with kmq.open(tmp_path, durability=durability) as store:
        store.create_topic("t")
        with store.producer(linger=30.0, partitioner=threads) as producer:
            for number in range(3):
                assert producer.send("t", b"v").result().offset == number
    assert threads.seen == [threading.current_thread()] * 3


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_who_flushes_commits_in_its_own_thread(tmp_path: Path, durability: str):
    threads = _Threads()
    with kmq.open(tmp_path, durability=durability) as store:
        store.create_topic("t")
        with store.producer(linger=30.0, partitioner=threads) as producer:
            for _ in range(3):
                producer.send("t", b"v")
            assert producer.flush() == 0
    assert threads.seen == [threading.current_thread()] * len(threads.seen) != []


def test_who_flushes_does_not_call_for_what_is_on_its_way():
    pending = Pending(SYSTEM, linger=30.0, batch_bytes=1000, max_bytes=1000)
    pending.add("t", b"v", None, None, None)
    pending.take()
    pending._arrived.silence()
    assert pending.flush(0.0) == 1
    assert not pending._arrived.wait(0)


def test_who_flushes_does_not_wait_for_what_is_sent_meanwhile(monkeypatch: pytest.MonkeyPatch):
    pending = Pending(SYSTEM, linger=30.0, batch_bytes=1000, max_bytes=1000)
    pending.add("t", b"before", None, None, None)

    def commit_while_another_is_sent() -> None:
        _, taken = pending.take()
        pending.add("t", b"meanwhile", None, None, None)
        pending.finished(taken)

    monkeypatch.setattr(pending, "call_worker", commit_while_another_is_sent)
    assert pending.flush(0.0) == 0
    assert len(pending) == 1


def test_who_finds_nothing_to_commit_wakes_nobody():
    pending = Pending(SYSTEM, linger=30.0, batch_bytes=1000, max_bytes=1000)
    looks: list[None] = []

    def finds_nothing() -> bool:
        pending.take()
        looks.append(None)
        return False

    assert not pending._sleepers.sleep(finds_nothing, 0.0)
    assert len(looks) == 1


def test_records_of_many_topics_gather_though_nearly_too_much_is_pending(
    monkeypatch: pytest.MonkeyPatch,
):
    pending = Pending(SYSTEM, linger=30.0, batch_bytes=100_000, max_bytes=16_000)
    pending.add("large", bytes(15_000), None, None, None)
    pending.take()
    monkeypatch.setattr(pending, "_wait_for_room", lambda: None)
    for _ in range(7):
        for number in range(4):
            pending.add(f"t{number}", b"v", None, None, None)
    assert [len(sends) for sends in pending._waiting] == [7] * 4


def test_sends_now_and_then_without_linger_are_written_when_send_returns(tmp_path: Path):
    with kmq.open(tmp_path, durability="os") as store:
        store.create_topic("t")
        with store.producer(linger=0.0) as producer:
            for number in range(3):
                assert producer.send("t", b"v").done()
                assert len(values(store, "t")) == number + 1
                time.sleep(0.01)


def test_a_stream_of_sends_without_linger_is_not_committed_one_by_one(tmp_path: Path):
    with kmq.open(tmp_path, durability="os") as store:
        store.create_topic("t")
        before = store.log.refresh().lsn
        with store.producer(linger=0.0) as producer:
            for _ in range(5_000):
                producer.send("t", b"v")
        assert store.log.refresh().lsn - before < 2_500
        assert len(values(store, "t")) == 5_000


class _Naps(Bell):
    """Is never set, and plays what happens while the worker waits for it."""

    def __init__(self, *scenes: Callable[[], object]) -> None:
        super().__init__()
        self.scenes = list(scenes)

    def wait(self, timeout: float | None = None) -> bool:
        self.scenes.pop(0)()
        return False


@pytest.mark.parametrize("linger", [0.0, 30.0])
def test_what_comes_after_a_callers_commit_is_left_to_the_caller_anew(linger: float):
    pending = Pending(SYSTEM, linger=linger, batch_bytes=1000, max_bytes=1000)

    def send() -> None:
        pending.add("t", b"v", None, None, None)
        pending.call_worker(now=False)

    def commit_and_send() -> None:
        sends = pending.take_alone(1000, "caller")
        pending.finished(sends)
        pending.caller = None
        send()

    send()
    naps = pending._urgent = _Naps(commit_and_send, commit_and_send, lambda: None)
    assert pending.wait()
    assert naps.scenes == []
    assert len(pending.take()[1]) == 1


def test_callbacks_run_in_the_producers_thread_though_a_caller_waits(store: kmq.Store):
    store.create_topic("t")
    called: list[threading.Thread] = []

    def note(*_: object) -> None:
        called.append(threading.current_thread())

    with store.producer(linger=0.0) as producer:
        for _ in range(20):
            future = producer.send("t", b"v", on_delivery=note)
            future.add_done_callback(lambda _: None)
            producer.send("t", b"v").result()
            future.result()
    assert len(called) == 20
    assert threading.current_thread() not in called


def test_a_callback_that_was_added_while_a_caller_commits_runs_in_the_producers_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    called = threading.Event()
    threads: list[threading.Thread] = []
    futures: list[object] = []
    append = LocalLog.append

    def note(_: object) -> None:
        threads.append(threading.current_thread())
        called.set()

    def adding(self: LocalLog, units: object) -> object:
        for future in futures:
            future.add_done_callback(note)
        futures.clear()
        return append(self, units)

    with kmq.open(tmp_path, durability="os") as store:
        store.create_topic("t")
        with store.producer(linger=30.0) as producer:
            future = producer.send("t", b"v")
            futures.append(future)
            monkeypatch.setattr(LocalLog, "append", adding)
            assert future.result().offset == 0
            assert called.wait(10)
            assert producer.flush(10) == 0
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("linger", [0.0, 30.0])
def test_a_caller_is_not_kept_while_somebody_else_holds_the_append_lock(
    tmp_path: Path, linger: float
):
    with kmq.open(tmp_path) as store:
        store.create_topic("t")
        with store.producer(linger=linger) as producer:
            lock = store.log._end._append_lock
            lock.acquire()
            began = time.monotonic()
            try:
                future = producer.send("t", b"v")
                with pytest.raises(kmq.KmqTimeoutError):
                    future.result(0.05)
            finally:
                lock.release()
            assert time.monotonic() - began < 5
            assert future.result(10).offset == 0


def test_who_waits_with_a_timeout_is_not_kept_by_a_sync_in_its_next_send(tmp_path: Path):
    with kmq.open(tmp_path, durability="fsync") as store:
        store.create_topic("t")
        with store.producer(linger=0.0) as producer:
            producer.send("t", b"v").result(10)
            lock = store.log.files.open_lock("locks/sync.lock")
            assert lock.try_acquire()
            began = time.monotonic()
            future = producer.send("t", b"v")
            assert time.monotonic() - began < 5
            lock.release()
            assert future.result(10).offset == 1


@pytest.mark.parametrize("durability", ["os", "fsync"])
@pytest.mark.parametrize("moment", ["before", "written", "finishing"])
def test_a_signal_in_a_committing_caller_loses_nothing_and_stores_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, moment: str
):
    caller = threading.current_thread()
    where = (Acknowledger, "acknowledge") if moment == "finishing" else (LocalLog, "append")
    real = getattr(*where)
    armed = [True]

    def interrupted(*arguments: object, **options: object) -> object:
        fires = threading.current_thread() is caller and armed and armed.pop()
        if fires and moment == "before":
            raise KeyboardInterrupt
        result = real(*arguments, **options)
        if fires:
            raise KeyboardInterrupt
        return result

    with kmq.open(tmp_path, durability=durability) as store:
        store.create_topic("t")
        with store.producer(linger=30.0) as producer:
            sent = [producer.send("t", b"%d" % number) for number in range(3)]
            monkeypatch.setattr(*where, interrupted)
            with pytest.raises(KeyboardInterrupt):
                sent[2].result()
            sent.append(producer.send("t", b"3"))
            assert producer.flush(10) == 0
            assert [future.result(10).offset for future in sent] == [0, 1, 2, 3]
        assert values(store, "t") == [b"0", b"1", b"2", b"3"]


def test_threads_that_all_wait_at_once_get_their_records_in_their_own_order(tmp_path: Path):
    def work(producer: kmq.Producer, name: int) -> None:
        for number in range(100):
            producer.send("t", b"%d-%d" % (name, number)).result()

    with kmq.open(tmp_path, durability="os") as store:
        store.create_topic("t")
        with store.producer(linger=0.0) as producer:
            threads = [threading.Thread(target=work, args=(producer, name)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        found = values(store, "t")
    for name in range(4):
        mine = [value for value in found if value and value.startswith(b"%d-" % name)]
        assert mine == [b"%d-%d" % (name, number) for number in range(100)]


def test_in_a_bucket_what_nobody_waits_for_is_committed_though_the_last_was_waited_for():
    bucket = BucketFiles(MemoryBucket(f"memory-bucket://{uuid.uuid4().hex}"))
    identity = Identity(SYSTEM.new_uuid(), bucket=BucketFacts("", True, ()))
    with kmq.Store(BucketLog(bucket, identity, SYSTEM), maintenance=False) as store:
        store.create_topic("t")
        with store.producer(linger=0.0) as producer:
            for _ in range(20):
                producer.send("t", b"v").result()
            done = threading.Event()
            producer.send("t", b"w").add_done_callback(lambda _: done.set())
            assert done.wait(10)
            assert values(store, "t") == [b"v"] * 20 + [b"w"]
