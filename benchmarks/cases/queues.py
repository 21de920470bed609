"""Queues: put, receive and acknowledge; one by one, in groups, as Arrow, by many processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import kmq_spark as kmq
from benchmarks import dataset, stores
from benchmarks.cases.senders import SPAWN
from benchmarks.clock import spread, stopwatch
from benchmarks.job import Job, Measure, Sample
from benchmarks.peers.redis_queue import RedisQueue
from benchmarks.peers.sqlite_queue import SqliteQueue

_QUEUE = "work"
_RECEIVERS = 8
_GROUP = 100
#: Delayed records that become due within a second.
_DUE = 300
#: Checkpoints while records are in flight.
_CHECKPOINTS = 5

_Work = Callable[[kmq.Queue, kmq.Producer, list[bytes]], None]


@contextmanager
def _queue(job: Job, durability: str) -> Iterator[tuple[kmq.Store, str]]:
    """A store with an empty queue."""
    with stores.fresh(job, durability) as (store, path):
        store.create_queue(_QUEUE, lock_timeout=600)
        yield store, path


def one_by_one(job: Job) -> Measure:
    """Each record is put by a call, then each is received by one and acknowledged by one; os."""

    def work(queue: kmq.Queue, producer: kmq.Producer, values: list[bytes]) -> None:
        for value in values:
            producer.send_to_queue(_QUEUE, value)
        producer.flush()
        for _ in values:
            queue.ack(queue.receive())

    return _worked(job, "os", job.sizes.records // 5, work)


def in_step(job: Job) -> Measure:
    """A record is put, and waited for, received and acknowledged, then the next one; os."""

    def work(queue: kmq.Queue, producer: kmq.Producer, values: list[bytes]) -> None:
        for value in values:
            producer.send_to_queue(_QUEUE, value).result()
            queue.ack(queue.receive())

    return _worked(job, "os", job.sizes.records // 200, work, linger=0.0)


def sqlite_one_by_one(job: Job) -> Measure:
    """In step in SQLite, which does not wait for the disk; its table stays small."""
    return _in_peer(job, SqliteQueue, job.sizes.records // 100, 1, durable=False)


def redis_one_by_one(job: Job) -> Measure:
    """In step in a stream of Redis, which does not wait for the disk."""
    return _in_peer(job, RedisQueue, job.sizes.records // 100, 1, durable=False)


def groups_fsync(job: Job) -> Measure:
    """Put, received and acknowledged by a hundred; each call waits for the disk."""

    def work(queue: kmq.Queue, producer: kmq.Producer, values: list[bytes]) -> None:
        for first in range(0, len(values), _GROUP):
            for value in values[first : first + _GROUP]:
                producer.send_to_queue(_QUEUE, value)
            producer.flush()
            queue.ack(queue.receive(_GROUP))

    return _worked(job, "fsync", job.sizes.records // 20, work)


def _worked(job: Job, durability: str, count: int, work: _Work, **producer: Any) -> Measure:
    def measure() -> Sample:
        values = dataset.values(count)
        with (
            _queue(job, durability) as (store, _),
            store.queue(_QUEUE) as queue,
            store.producer(**producer) as sender,
            stopwatch() as watch,
        ):
            work(queue, sender, values)
        return watch.rate(count)

    return measure


def sqlite_groups_fsync(job: Job) -> Measure:
    """The same in SQLite, with synchronous = full."""
    return _in_peer(job, SqliteQueue, job.sizes.records // 20, _GROUP, durable=True)


def redis_groups_fsync(job: Job) -> Measure:
    """The same in a stream of Redis, with appendfsync = always."""
    return _in_peer(job, RedisQueue, job.sizes.records // 20, _GROUP, durable=True)


def _in_peer(job: Job, kind: type[Any], count: int, most: int, *, durable: bool) -> Measure:
    def measure() -> Sample:
        values, folder = dataset.values(count), stores.new_path(job)
        folder.mkdir(parents=True)
        with kind(folder, durable=durable) as queue, stopwatch() as watch:
            for first in range(0, count, most):
                queue.put(values[first : first + most])
                queue.ack([number for number, _ in queue.receive(most)])
        shutil.rmtree(folder)
        return watch.rate(count)

    return measure


def arrow(job: Job) -> Measure:
    """Received and acknowledged as tables, from a bound topic; os."""

    def measure() -> Sample:
        with _filled(job) as (store, _), store.queue(_QUEUE) as queue, stopwatch() as watch:
            done = 0
            while table := queue.receive_arrow():
                queue.ack(table)
                done += table.num_rows
        _check(done, job)
        return watch.rate(done)

    return measure


def one_receiver(job: Job) -> Measure:
    """One process receives and acknowledges by a hundred; os."""
    return _received(job, 1)


def eight_receivers(job: Job) -> Measure:
    """Eight processes on the same queue."""
    return _received(job, _RECEIVERS)


def _received(job: Job, processes: int) -> Measure:
    def measure() -> Sample:
        with _filled(job) as (_, path):
            begin, told = SPAWN.Barrier(processes + 1), SPAWN.Queue()
            started = [
                SPAWN.Process(target=_receive, args=(path, begin, told)) for _ in range(processes)
            ]
            for process in started:
                process.start()
            begin.wait()
            with stopwatch() as watch:
                counts = [told.get(timeout=300) for _ in started]
            for process in started:
                process.join()
        _check(sum(counts), job)
        return watch.rate(sum(counts))

    return measure


def _receive(url: str, begin: Any, told: Any) -> None:
    with kmq.open(url, durability="os") as store, store.queue(_QUEUE) as queue:
        begin.wait()
        count = 0
        while held := queue.receive(_GROUP):
            queue.ack(held)
            count += len(held)
    told.put(count)


def tens(job: Job) -> Measure:
    """One thread receives and acknowledges by ten; os."""
    return _by_ten(job, 1)


def tens_in_threads(job: Job) -> Measure:
    """Eight threads of the same handle."""
    return _by_ten(job, _RECEIVERS)


def _by_ten(job: Job, threads: int) -> Measure:
    def take_all(queue: kmq.Queue) -> int:
        count = 0
        while held := queue.receive(10):
            queue.ack(held)
            count += len(held)
        return count

    def measure() -> Sample:
        with (
            _filled(job) as (store, _),
            store.queue(_QUEUE) as queue,
            ThreadPoolExecutor(threads) as pool,
            stopwatch() as watch,
        ):
            count = sum(pool.map(take_all, [queue] * threads))
        _check(count, job)
        return watch.rate(count)

    return measure


@contextmanager
def _filled(job: Job) -> Iterator[tuple[kmq.Store, str]]:
    """A store with a queue that reads a topic of all records."""
    with _queue(job, "os") as (store, path), store.producer() as producer:
        for batch in dataset.arrow_batches(job.sizes.records, 100_000):
            producer.send_arrow(stores.TOPIC, batch)
        producer.flush()
        store.bind_queue(_QUEUE, stores.TOPIC)
        yield store, path


def _check(done: int, job: Job) -> None:
    if done != job.sizes.records:
        raise RuntimeError(f"{done} of {job.sizes.records} records were acknowledged")


def delayed(job: Job) -> Measure:
    """As many delayed records as there are; what opening their store costs, and holds."""

    def measure() -> Sample:
        with _queue(job, "os") as (store, path):
            _delay_all(store, job)
            store.checkpoint()
            told = SPAWN.Queue()
            reader = SPAWN.Process(target=_count, args=(path, told))
            reader.start()
            seconds, count, mb = told.get(timeout=300)
            reader.join()
        _check(count, job)
        return {"open_ms": seconds * 1e3, "held_mb": mb}

    return measure


def in_flight(job: Job) -> Measure:
    """Put and received, as many as there are; what holding them takes, with maintenance.

    Checkpoints are written meanwhile, and some more records acknowledged one by one.
    """

    def measure() -> Sample:
        with _filled(job) as (_, path):
            told = SPAWN.Queue()
            holder = SPAWN.Process(target=_hold, args=(path, job.sizes.records, told))
            holder.start()
            own, peak = told.get(timeout=300)
            holder.join()
        return {"own_mb": own, "peak_mb": peak}

    return measure


def _hold(url: str, count: int, told: Any) -> None:
    with (
        kmq.open(url, durability="os") as store,
        store.queue(_QUEUE, prefetch=1) as queue,
        store.producer(linger=0.0) as producer,
        _own_memory() as seen,
    ):
        while count > 0:
            count -= queue.receive_arrow(count).num_rows
        for _ in range(_CHECKPOINTS):
            for _ in range(_GROUP):
                producer.send_to_queue(_QUEUE, b"one more").result()
                queue.ack(queue.receive())
            store.checkpoint()
        told.put((max(seen), _status("VmHWM")))


@contextmanager
def _own_memory() -> Iterator[list[float]]:
    """The memory of this process in MiB without the pages of files, looked at all the time."""
    seen, ended = [_status("RssAnon")], Event()

    def look() -> None:
        while not ended.wait(0.003):
            seen.append(_status("RssAnon"))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(look)
        yield seen
        ended.set()


def _delay_all(store: kmq.Store, job: Job) -> None:
    with store.producer() as producer:
        for value in dataset.values(job.sizes.records):
            producer.send_to_queue(_QUEUE, value, delay=3_600)


def lateness(job: Job) -> Measure:
    """How long after its time a delayed record is in the hands of a receiver that waits; os.

    Beside as many that come later as there are.
    """

    def measure() -> Sample:
        late: list[float] = []
        with (
            _queue(job, "os") as (store, _),
            store.queue(_QUEUE) as queue,
            store.producer() as producer,
        ):
            _delay_all(store, job)
            begin = time.time() + 3.0  # the receiver waits by then
            for number in range(_DUE):
                at = begin + number / _DUE
                when = datetime.fromtimestamp(at, UTC)
                producer.send_to_queue(_QUEUE, repr(at).encode(), deliver_at=when)
            producer.flush()
            while len(late) < _DUE:
                held = queue.receive(_GROUP, timeout=None)
                now = time.time()
                late += [(now - float(each.value)) * 1e3 for each in held]
                queue.ack(held)
        return spread(late)

    return measure


def _count(url: str, told: Any) -> None:
    with stopwatch() as watch, kmq.open(url, maintenance=False) as store:
        count = store.queue(_QUEUE).stats().delayed
    told.put((watch.seconds, count, _status("VmHWM")))


def _status(name: str) -> float:
    """A size that the kernel tells of this process, in MiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024
