"""A streaming query among topics that come and go.

    python -m tests.chaos.spark_stress --minutes 10

Topics are made, deleted, made again and given partitions; producers are killed; the query, which
copies every topic of a pattern into one with the kmq sink, is stopped or killed and started again.
At the end each record of a topic that is still there was copied once and in order; of a deleted
one those that the query's group had committed before, and none twice.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import kmq_spark as kmq
from tests.support.spark import stay_on_this_machine

PREFIX, COPIES, GROUP = "stress-", "copies", "copier"
NAMES = [f"{PREFIX}{n}" for n in range(8)]
PRODUCERS = 3
#: How long the query may take until it lags by less, at the end.
_DRAIN_SECONDS = 300.0
#: Records of a batch at most; each run of the query has another.
_LIMITS = (200, 2_000, 100_000)
#: What Spark says on a busy machine: it waits ten seconds for each process that it starts.
SLOW_STARTS = (b"Python worker failed to connect back", b"[CANNOT_OPEN_SOCKET]")

#: Stops its query when its standard input ends, and ends with the error that its query ended with.
DRIVER = """
import select
import sys
from pyspark.sql import SparkSession

url, checkpoint, limit = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
builder = builder.config("spark.driver.memory", "1g").config("spark.log.level", "ERROR")
builder = builder.config("spark.ui.showConsoleProgress", False)
reader = builder.getOrCreate().readStream.format("kmq").option("subscribePattern", "^stress-")
reader = reader.option("startingOffsets", "earliest").option("failOnDataLoss", False)
frame = reader.option("maxOffsetsPerTrigger", limit).option("group", "copier").load(url)
writer = frame.selectExpr("concat(topic, ':', partition) key", "value").writeStream.format("kmq")
writer = writer.option("topic", "copies").option("checkpointLocation", checkpoint)
query = writer.start(url)
while not select.select([sys.stdin], [], [], 0.2)[0]:
    if not query.isActive:
        raise query.exception()
query.stop()
"""


def produce(url: str, worker: int) -> None:
    """Send records that say who sent them, to topics that may be gone, until killed or alone."""
    parent = multiprocessing.parent_process()
    assert parent, "a producer is a process of a stress"
    rng = random.Random(worker)
    store = kmq.open(url, durability="os", maintenance=False)
    producer, number = store.producer(linger=0.0), 0
    while parent.is_alive():
        for topic in store.topics():
            if not topic.name.startswith(PREFIX):
                continue
            partition, count = rng.randrange(topic.partitions), rng.choice((1, 5, 50))
            name = f"{topic.topic_id}:{partition}:{worker}"
            values = [f"{name}:{n}".encode() for n in range(number, number + count)]
            number += count
            try:
                producer.send_batch(topic.name, values, partition=partition).result(timeout=60)
            except kmq.KmqError as error:
                if topic.name in {each.name for each in store.topics()}:
                    print(f"producer {worker}: {error!r}", flush=True)
        time.sleep(0.05)


class Stress:
    """The processes, and what must be found at the end."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._log = folder / "driver.log"
        self._rng = rng
        self.url = str(folder / "store")
        self.store = kmq.open(self.url, durability="os")
        self.store.create_topic(COPIES, partitions=3)
        self.store.create_topic(NAMES[0], partitions=2)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        #: Values of deleted topics that the group had committed.
        self.must: set[bytes] = set()
        self._context = multiprocessing.get_context("spawn")
        self._producers = [self._start_producer() for _ in range(PRODUCERS)]
        self._driver = self._start_driver(self._rng.choice(_LIMITS))

    def rage(self, seconds: float) -> None:
        """Do something every moment, until the time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.wrong:
            self._rng.choice((self._kill_producer, self._kill_producer, self._topic))()
            if self._is_due():
                self._restart()
            self._watch()
            time.sleep(self._rng.uniform(0.2, 2.0))

    def drain(self) -> None:
        """Let the query reach the end of what is there."""
        for producer in self._producers:
            producer.kill()
            producer.join()
        self._kill_driver()
        self._driver = self._start_driver(_LIMITS[-1])
        least, progressed = self._lag(), time.monotonic()
        while (lag := self._lag()) and not self.wrong:
            self._watch()
            if lag < least:
                least, progressed = lag, time.monotonic()
            if time.monotonic() > progressed + _DRAIN_SECONDS:
                self.wrong.append(f"the query lags by {lag}, and makes no progress")
            time.sleep(0.2)
        self._kill_driver()

    def _is_due(self) -> bool:
        """Whether the query ends now: mostly some time after its first batch, sometimes before."""
        if self._due is None and self._copied() > self._copied_before:
            self._due = time.monotonic() + self._rng.uniform(0.0, 30.0)
        return self._due is not None and time.monotonic() > self._due

    def _copied(self) -> int:
        return self.store.describe_topic(COPIES).rows

    def _start_producer(self) -> Any:
        self.counts["producers"] += 1
        process = self._context.Process(
            target=produce, args=(self.url, self.counts["producers"]), daemon=True
        )
        process.start()
        return process

    def _kill_producer(self) -> None:
        slot = self._rng.randrange(PRODUCERS)
        self._producers[slot].kill()
        self._producers[slot].join()
        self._producers[slot] = self._start_producer()

    def _topic(self) -> None:
        name, there = self._rng.choice(NAMES), {each.name: each for each in self.store.topics()}
        if name not in there:
            self.store.create_topic(name, partitions=self._rng.randint(1, 4))
            self.counts["topics made"] += 1
        elif self._rng.random() < 0.2:
            self._delete(name)
        elif (partitions := there[name].partitions) < 8:
            self.store.add_partitions(name, partitions + 1)
            self.counts["partitions added"] += 1

    def _delete(self, name: str) -> None:
        committed = self._committed(name)
        self.must |= {
            row["value"]
            for row in self.store.read(name).read_all().to_pylist()
            if row["offset"] < committed.get(row["partition"], 0)
        }
        self.store.delete_topic(name)
        self.counts["topics deleted"] += 1

    def _start_driver(self, limit: int) -> subprocess.Popen[bytes]:
        self.counts["runs of the query"] += 1
        self._copied_before = self._copied()
        early = self._rng.random() < 0.2
        self._due = time.monotonic() + self._rng.uniform(0.0, 30.0) if early else None
        checkpoint = str(self._folder / "checkpoint")
        command = [sys.executable, "-c", DRIVER, self.url, checkpoint, str(limit)]
        with self._log.open("ab") as log:
            self._logged = log.tell()
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def _restart(self) -> None:
        if self._rng.random() < 0.5:
            self._kill_driver()
            self.counts["drivers killed"] += 1
        else:
            assert self._driver.stdin
            self._driver.stdin.close()
            if self._driver.wait(timeout=120) and not self._was_slow():
                self.wrong.append("a query that was stopped ended with an error")
        self._driver = self._start_driver(self._rng.choice(_LIMITS))

    def _kill_driver(self) -> None:
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()

    def _watch(self) -> None:
        if self._driver.poll() is None:
            return
        if self._was_slow():
            self._driver = self._start_driver(self._rng.choice(_LIMITS))
        else:
            self.wrong.append("the query ended by itself")

    def _was_slow(self) -> bool:
        """Whether this run ended because a process of Spark's took too long to begin."""
        said = self._log.read_bytes()[self._logged :]
        slow = any(words in said for words in SLOW_STARTS)
        self.counts["runs that Spark lost patience with"] += slow
        return slow

    def _committed(self, topic: str) -> dict[int, int]:
        if GROUP not in {group.name for group in self.store.groups()}:
            return {}
        return dict(self.store.describe_group(GROUP).committed.get(topic, {}))

    def _lag(self) -> int:
        return sum(
            end - self._committed(topic.name).get(partition, 0)
            for topic in self.store.topics()
            if topic.name.startswith(PREFIX)
            for partition, (_, end) in self.store.offsets(topic.name).items()
        )


def check(stress: Stress) -> None:
    """Compare the copies with their sources."""
    store, wrong = stress.store, stress.wrong
    copies = store.read(COPIES).read_all().column("value").to_pylist()
    live = [topic.name for topic in store.topics() if topic.name.startswith(PREFIX)]
    sources = {v for name in live for v in store.read(name).read_all().column("value").to_pylist()}
    counts = Counter(copies)
    twice = [value for value, count in counts.items() if count > 1]
    wrong += [f"copied twice: {value!r}" for value in twice]
    wrong += [f"not copied: {value!r}" for value in sorted(sources - set(counts))]
    wrong += [
        f"lost from a deleted topic: {value!r}" for value in sorted(stress.must - set(counts))
    ]
    wrong += [f"out of order: {value!r}" for value in _disordered(copies)]
    stress.counts["copies"] = len(copies)
    stress.counts["of live topics"] = len(sources)
    stress.counts["of deleted topics, committed"] = len(stress.must)


def _disordered(copies: list[bytes]) -> list[bytes]:
    last: dict[bytes, int] = {}
    found = []
    for value in copies:
        name, _, number = value.rpartition(b":")
        if int(number) < last.get(name, -1):
            found.append(value)
        last[name] = int(number)
    return found


def main() -> int:
    """Run, count, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    stay_on_this_machine()
    folder = Path(tempfile.mkdtemp(prefix="kmq-spark-stress-"))
    stress = Stress(folder, random.Random(options.seed))
    stress.rage(options.minutes * 60)
    stress.drain()
    check(stress)
    print(json.dumps({"seed": options.seed, **stress.counts}))
    stress.store.close()
    if stress.wrong:
        print(f"wrong in {folder}:", *stress.wrong[:20], sep="\n")
    else:
        print("ok")
        shutil.rmtree(folder)
    return 1 if stress.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
