"""Transactions that wait for the disk, beside plain commits of as many records, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks import dataset, stores
from benchmarks.job import Job, Measure, Sample

_TOPICS, _RECORDS, _ROUNDS = ("t1", "t2", "t3"), 10, 40


def beside_commits(job: Job) -> Measure:
    """10 records over 3 topics in a transaction, and a batch of 10 for one topic: medians."""

    def measure() -> Sample:
        with stores.fresh(job, "fsync") as (store, _):
            for topic in _TOPICS:
                store.create_topic(topic)
            with store.producer(linger=0.0) as producer:
                single, transaction = _single(producer), _transaction(producer)
                taken: dict[str, list[float]] = {"single": [], "transaction": []}
                for _ in range(_ROUNDS * max(1, round(job.sizes.seconds))):
                    taken["single"].append(_seconds(single))
                    taken["transaction"].append(_seconds(transaction))
        return {f"{name}_ms": sorted(t)[len(t) // 2] * 1e3 for name, t in taken.items()}

    return measure


def _single(producer: Any) -> Callable[[], object]:
    values, keys = dataset.values(_RECORDS), dataset.keys(_RECORDS)
    return lambda: producer.send_batch(_TOPICS[0], values, keys).result()


def _transaction(producer: Any) -> Callable[[], object]:
    values, keys = dataset.values(_RECORDS), dataset.keys(_RECORDS)

    def run() -> None:
        with producer.transaction() as tx:
            for number in range(_RECORDS):
                tx.send(_TOPICS[number % len(_TOPICS)], values[number], keys[number])

    return run


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
