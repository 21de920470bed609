"""Processes that append one record at a time and wait for the disk: does one sync serve many?"""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks import dataset, scratch
from benchmarks.cases.senders import SPAWN
from benchmarks.job import Job, Measure, Sample

MANY = 16


def _append(url: str, topic: str, seconds: float, begin: Any, done: Any) -> None:
    import kmq_spark as kmq

    value, key = dataset.values(1)[0], dataset.keys(1)[0]
    with kmq.open(url, durability="fsync") as store, store.producer(linger=0.0) as producer:
        producer.send(topic, value, key).result()
        begin.wait()
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            producer.send(topic, value, key).result()
            count += 1
    done.put(count)


def _rate(url: str, topic: str, processes: int, seconds: float) -> float:
    begin, done = SPAWN.Barrier(processes), SPAWN.Queue()
    arguments = (url, topic, seconds, begin, done)
    started = [SPAWN.Process(target=_append, args=arguments) for _ in range(processes)]
    for process in started:
        process.start()
    counts: list[int] = [done.get(timeout=120 + seconds) for _ in started]
    for process in started:
        process.join()
    return sum(counts) / seconds


def _kmq(job: Job, processes: int) -> Measure:
    from benchmarks import stores

    def measure() -> Sample:
        with stores.fresh(job, "fsync") as (_, path):
            return {"rate": _rate(path, stores.TOPIC, processes, job.sizes.seconds / 4)}

    return measure


def kmq_one(job: Job) -> Measure:
    """One process."""
    return _kmq(job, 1)


def kmq_many(job: Job) -> Measure:
    """Sixteen processes on one topic."""
    return _kmq(job, MANY)


def disk_one(job: Job) -> Measure:
    """The limit for one process: a write and an fdatasync per record."""

    def measure() -> Sample:
        value, count = dataset.values(1)[0], 0
        seconds = job.sizes.seconds / 4
        with scratch.allocated(job) as file:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                os.write(file, value)
                os.fdatasync(file)
                count += 1
        return {"rate": count / seconds}

    return measure
