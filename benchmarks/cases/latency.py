"""From `send` in one process to the record in a consumer in another, 200 records a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from benchmarks import scratch
from benchmarks.cases import senders
from benchmarks.clock import spread
from benchmarks.job import Job, Measure, Sample

# The first records find caches cold and connections half open; they are not what a user waits for.
WARM_UP = 0.1


def _listen(
    poll: Callable[[float], Any], count: int, sender: AbstractContextManager[None]
) -> Sample:
    delays: list[float] = []
    poll(0.1)
    with sender:
        while len(delays) < count:
            record = poll(10.0)
            if record is None:
                raise RuntimeError(f"nothing came for 10 s after {len(delays)} records")
            value = record.value
            delays.append(senders.delay_ms(value() if callable(value) else value))
    return spread(delays[int(count * WARM_UP) :])


def _count(job: Job) -> int:
    return int(senders.PER_SECOND * job.sizes.seconds)


def _kmq(job: Job, durability: str) -> Measure:
    from benchmarks import stores

    count = _count(job)

    def measure() -> Sample:
        with (
            stores.fresh(job, durability) as (store, path),
            store.consumer(topics=[stores.TOPIC]) as consumer,
        ):
            told = (path, stores.TOPIC, durability, count)
            return _listen(consumer.poll, count, senders.sending(senders.send_to_kmq, *told))

    return measure


def kmq_os(job: Job) -> Measure:
    """kmq, acknowledged and seen once written."""
    return _kmq(job, "os")


def kmq_fsync(job: Job) -> Measure:
    """kmq, acknowledged and seen once on disk."""
    return _kmq(job, "fsync")


def _kafka(job: Job, *, fsync: bool) -> Measure:
    from confluent_kafka import OFFSET_END

    from benchmarks.peers import topics

    count = _count(job)

    def measure() -> Sample:
        topic = topics.create(job.broker, fsync=fsync)
        consumer = topics.consumer(job.broker, topic, start=OFFSET_END)
        # The consumer must stand at the end before the sender starts, or it misses the first.
        consumer.poll(2.0)
        sender = senders.sending(senders.send_to_kafka, job.broker, topic, count)
        try:
            return _listen(consumer.poll, count, sender)
        finally:
            consumer.close()
            topics.delete(job.broker, topic)

    return measure


def kafka_os(job: Job) -> Measure:
    """Kafka as it comes: acknowledged once in the broker's page cache."""
    return _kafka(job, fsync=False)


def kafka_fsync(job: Job) -> Measure:
    """Kafka with a topic that is synced before each acknowledgement."""
    return _kafka(job, fsync=True)


def disk(job: Job) -> Measure:
    """The limit of the fsync class: one value written and synced, nobody told."""

    def measure() -> Sample:
        delays = []
        with scratch.allocated(job) as file:
            for _ in senders.paced(_count(job) // 4):
                began = time.perf_counter()
                os.write(file, senders.stamped())
                os.fdatasync(file)
                delays.append((time.perf_counter() - began) * 1e3)
        return spread(delays)

    return measure
