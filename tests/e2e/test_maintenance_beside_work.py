"""Producers, consumers and two maintainers with no grace time at all, on one store at once.

Finds what only threads and real files show: a plan that is older than its LSN, a reader that gives
up on a file that moved, a count that two commits of one moment get wrong.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.moving import looking_again, planning
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.compact import compact_keys, merge, plan_merges
from kmq_storage.maintenance.reports import CompactReport
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.local import LocalDisk
from tests.support.engine import counted, held

SECONDS = 3.0
PARTITIONS = 3


def _open(folder: Path) -> kmq.Store:
    """A handle on a store with small log files."""
    disk = LocalDisk(folder)
    identity = open_identity(disk, SYSTEM, create=True, log_file_bytes=64 * 1024)
    return kmq.Store(LocalLog(disk, identity, SYSTEM, durable=False))


class Work:
    """Threads that go on until told to stop, and what went wrong in them."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, step: Callable[[], None]) -> None:
        """Repeat this in a thread of its own."""
        thread = threading.Thread(target=self._run, args=(step,))
        self._threads.append(thread)
        thread.start()

    def _run(self, step: Callable[[], None]) -> None:
        try:
            while not self.stopped.is_set():
                step()
        except BaseException as error:
            self.errors.append(error)
            self.stopped.set()

    def finish(self) -> None:
        """Let them work for a while, and have nothing gone wrong."""
        self.stopped.wait(SECONDS)
        self.stopped.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def _producing(store: kmq.Store, sent: dict[int, list[bytes]]) -> Callable[[], None]:
    producer, rng = store.producer(linger=0.0), random.Random(1)

    def step() -> None:
        number = rng.randrange(PARTITIONS)
        values = [b"%d" % (len(sent[number]) + n) for n in range(rng.randrange(1, 40))]
        producer.send_batch("plain", values, partition=number).result(30)
        sent[number] += values
        keys = [b"%d" % rng.randrange(50) for _ in values]
        producer.send_batch("keyed", values, keys=keys).result(30)

    return step


def _maintaining(store: kmq.Store, seed: int) -> Callable[[], None]:
    rng, log = random.Random(seed), store.log

    def merged(state: StoreState) -> CompactReport:
        return merge(log, plan_merges(state.topic("plain"), state.lsn, segment_bytes=50_000, now=0))

    def compacted(state: StoreState) -> CompactReport:
        return compact_keys(log, state.topic("keyed"), state.lsn, segment_bytes=5_000)

    def step() -> None:
        size = rng.choice([500, 20_000])
        match rng.randrange(6):  # `planning`: with no grace a page goes while a plan looks for it
            case 0 | 1:
                planning(log, lambda state: seal(log, plan_seal(state, segment_bytes=size)))
            case 2:
                planning(log, merged)
            case 3:
                planning(log, compacted)
            case 4:
                store.checkpoint()
            case 5:
                store.collect(grace=0)

    return step


def _consuming(store: kmq.Store, found: dict[int, list[bytes | None]]) -> Callable[[], None]:
    consumer = store.consumer(topics=["plain"])

    def step() -> None:
        for record in consumer.consume(50, timeout=0.05):
            assert record.offset == len(found[record.partition])
            found[record.partition].append(record.value)

    return step


def _reading(store: kmq.Store) -> Callable[[], None]:
    rng = random.Random(9)

    def step() -> None:
        number = rng.randrange(PARTITIONS)
        end = store.offsets("plain")[number][1]
        start = rng.randrange(end + 1)
        reader = store.read("plain", partitions=[number], start={number: start}, end={number: end})
        values = reader.read_all()["value"].to_pylist()
        assert values == [b"%d" % n for n in range(start, end)]

    return step


def _expect_right_counts(state: StoreState) -> None:
    for topic in ("plain", "keyed"):
        for number in range(PARTITIONS):
            assert counted(state.topic(topic).partition(number)) == held(state, topic, number)


def test_everything_at_once_loses_doubles_and_moves_nothing(tmp_path: Path):
    stores = [_open(tmp_path / "store") for _ in range(5)]
    stores[0].create_topic("plain", partitions=PARTITIONS)
    stores[0].create_topic("keyed", partitions=PARTITIONS, cleanup="compact")
    sent: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    found: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}
    work = Work()
    work.start(_producing(stores[0], sent))
    work.start(_maintaining(stores[1], 1))
    work.start(_maintaining(stores[2], 2))
    consume = _consuming(stores[3], found)
    work.start(consume)
    work.start(_reading(stores[4]))
    work.finish()
    deadline = time.monotonic() + 120
    while found != sent and time.monotonic() < deadline:
        consume()
    assert found == sent
    for store in [*stores, _open(tmp_path / "store")]:
        looking_again(store.log, _expect_right_counts)  # as readers do, for the same reason
        for number in range(PARTITIONS):
            values = store.read("plain", partitions=[number]).read_all()["value"].to_pylist()
            assert values == sent[number]
    assert len(list((tmp_path / "store" / paths.LOG_FOLDER).iterdir())) < 200
    for store in stores:
        store.close()
