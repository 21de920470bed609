"""Members that share a group: how soon a dead one is replaced, and what offset commits cost."""

from __future__ import annotations

import contextlib
import time
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks import stores
from benchmarks.cases.senders import SPAWN
from benchmarks.clock import spread, stopwatch
from benchmarks.job import Job, Measure, Sample

_MEMBERS, _PARTITIONS, _GROUPS = 10, 100, 100
_GROUP = "shared"


def _read(url: str, told: Any) -> None:
    """Read and commit until killed; tell when each partition was read."""
    import kmq_spark as kmq

    store = kmq.open(url, durability="os")
    with store.consumer(_GROUP, topics=[_GROUP], assignor="sticky") as consumer:
        while True:
            partitions = {record.partition for record in consumer.consume(timeout=1.0)}
            if partitions:
                told.put((time.monotonic(), partitions))
                consumer.commit()


def takeover(job: Job) -> Measure:
    """10 members on 100 partitions, one is killed: until each partition of it is read again."""

    def measure() -> Sample:
        with stores.fresh(job, "os") as (store, path), ExitStack() as stack:
            store.create_topic(_GROUP, partitions=_PARTITIONS)
            told = SPAWN.Queue()
            members = [SPAWN.Process(target=_read, args=(path, told)) for _ in range(_MEMBERS)]
            for member in members:
                member.start()
                stack.callback(member.join)
                stack.callback(member.kill)
            return spread(_delays(store, members, told))

    return measure


def _delays(store: Any, members: list[Any], told: Any) -> list[float]:
    def owned() -> dict[str, list[int]]:
        found = store.describe_group(_GROUP).members
        return {each.client: each.assignment.get(_GROUP, []) for each in found}

    while True:
        with contextlib.suppress(LookupError):  # nobody joined yet
            loads = [len(numbers) for numbers in owned().values()]
            if loads == [_PARTITIONS // _MEMBERS] * _MEMBERS:
                break
        time.sleep(0.05)
    victim = members[len(members) // 2]
    (missing,) = (
        set(numbers) for client, numbers in owned().items() if client.endswith(f"-{victim.pid}")
    )
    with store.producer(linger=0.0) as producer:
        killed = time.monotonic()
        victim.kill()
        for partition in missing:
            producer.send(_GROUP, b"v", partition=partition)
    delays = []
    while missing:
        when, partitions = told.get(timeout=60)
        delays += [(when - killed) * 1e3] * len(missing & partitions)
        missing -= partitions
    return delays


def offset_commits(job: Job) -> Measure:
    """Commits of 100 groups one after another, os; and what is kept of them after maintenance."""

    def measure() -> Sample:
        count = job.sizes.records // 10
        with stores.fresh(job, "os") as (store, path), ExitStack() as stack:
            with store.producer() as producer:
                producer.send_batch(stores.TOPIC, [b"v"] * 1_000, partition=0).result()
            groups = [
                stack.enter_context(store.consumer(f"g{number}", topics=[stores.TOPIC]))
                for number in range(_GROUPS)
            ]
            with stopwatch() as watch:
                for number, consumer in enumerate(islice(cycle(groups), count)):
                    consumer.commit({stores.TOPIC: {0: number % 1_000}})
            store.seal()
            for _ in range(2):  # what the last checkpoint needs goes with the next one
                groups[0].commit()
                store.checkpoint()
                store.collect(grace=0.0)
            return {**watch.rate(count), "kept_mb": _megabytes(path)}

    return measure


def _megabytes(path: str) -> float:
    """What the files of a store take on the disk, without the log file that is written now."""
    newest = max(Path(path, "log").glob("*.log"))
    files = [file for file in Path(path).rglob("*") if file.is_file() and file != newest]
    blocks = [file.stat().st_blocks for file in files]
    return sum(blocks) * 512 / 1e6
