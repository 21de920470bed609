"""Consuming: a topic written record by record, read whole by one consumer without a group.

The clock starts when the first records are there, so that neither side pays for connecting, and
every value is looked at. Kafka is tuned, for its client by default sleeps for a second whenever it
has read ahead far enough; the untuned figure is shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.clock import stopwatch
from benchmarks.job import Job, Measure, Sample

TUNED = {"fetch.queue.backoff.ms": 1}

# Reads some records and tells how many; 0 when there were none yet.
Read = Callable[[Any], int]


def _drain(consumer: Any, read: Read, total: int) -> Sample:
    first = 0
    while first == 0:
        first = read(consumer)
    done = first
    with stopwatch() as watch:
        while done < total:
            done += read(consumer)
    if done != total:
        raise RuntimeError(f"{done} records read of {total}")
    return watch.rate(total - first)


def _kmq(job: Job, read: Read) -> Measure:
    import kmq_spark as kmq
    from benchmarks import stores

    path = stores.filled_by_send(job, job.sizes.records)

    def measure() -> Sample:
        with kmq.open(path) as store, store.consumer(topics=[stores.TOPIC]) as consumer:
            return _drain(consumer, read, job.sizes.records)

    return measure


def kmq_poll(job: Job) -> Measure:
    """One record per call."""

    def read(consumer: Any) -> int:
        poll, size = consumer.poll, 0
        for count in range(1_000):
            record = poll(1.0)
            if record is None:
                return count
            size += len(record.value)
        return 1_000

    return _kmq(job, read)


def kmq_consume(job: Job) -> Measure:
    """Lists of 500."""

    def read(consumer: Any) -> int:
        records = consumer.consume(500, 1.0)
        sum([len(record.value) for record in records])
        return len(records)

    return _kmq(job, read)


def kmq_consume_arrow(job: Job) -> Measure:
    """Arrow tables of up to 65,536 rows."""

    def read(consumer: Any) -> int:
        table = consumer.consume_arrow(timeout=1.0)
        return 0 if table is None else table.num_rows

    return _kmq(job, read)


def _kafka(job: Job, read: Read, settings: dict[str, int]) -> Measure:
    from confluent_kafka import OFFSET_BEGINNING

    from benchmarks.peers import topics

    topic = topics.fill(job.broker, job.sizes.records)

    def measure() -> Sample:
        consumer = topics.consumer(job.broker, topic, start=OFFSET_BEGINNING, **settings)
        try:
            return _drain(consumer, read, job.sizes.records)
        finally:
            consumer.close()

    return measure


def _poll_thousand(consumer: Any) -> int:
    poll, size = consumer.poll, 0
    for count in range(1_000):
        message = poll(1.0)
        if message is None:
            return count
        size += len(message.value())
    return 1_000


def kafka_poll(job: Job) -> Measure:
    """One record per call, tuned."""
    return _kafka(job, _poll_thousand, TUNED)


def kafka_poll_untuned(job: Job) -> Measure:
    """One record per call, with librdkafka's defaults."""
    return _kafka(job, _poll_thousand, {})


def kafka_consume(job: Job) -> Measure:
    """Lists of 500, tuned."""

    def read(consumer: Any) -> int:
        messages = consumer.consume(500, 1.0)
        sum([len(message.value()) for message in messages])
        return len(messages)

    return _kafka(job, read, TUNED)


def kafka_consume_arrow(job: Job) -> Measure:
    """Lists of 10,000 turned into Arrow tables of key and value, tuned."""

    def read(consumer: Any) -> int:
        messages = consumer.consume(10_000, 1.0)
        keys = pa.array([message.key() for message in messages], pa.binary())
        values = pa.array([message.value() for message in messages], pa.binary())
        rows: int = pa.table({"key": keys, "value": values}).num_rows
        return rows

    return _kafka(job, read, TUNED)
