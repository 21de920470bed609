"""Producing: the same records through kmq, through confluent-kafka, and straight to a file.

The clock runs from the first call until everything is acknowledged. The records are there before,
as each call takes them; topics, connections and stores too, and one record has gone through them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from benchmarks import dataset, scratch
from benchmarks.clock import stopwatch
from benchmarks.job import Job, Measure, Sample

BATCH = 1_000
ARROW_BATCH = 10_000
#: Who share a producer, each with a part of the records.
THREADS = 10


# --- kmq


def _kmq(job: Job, durability: str, send: Callable[[Any, str], None]) -> Measure:
    from benchmarks import stores

    def measure() -> Sample:
        with stores.fresh(job, durability) as (store, _):
            with store.producer() as producer:
                producer.send(stores.TOPIC, b"first").result()
                with stopwatch() as watch:
                    send(producer, stores.TOPIC)
                    producer.flush()
            stores.check(store, job.sizes.records + 1)
        return watch.rate(job.sizes.records)

    return measure


def kmq_send(job: Job) -> Measure:
    """Record by record; the futures come, and nobody keeps them."""
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)

    def send(producer: Any, topic: str) -> None:
        for value, key in zip(values, keys, strict=True):
            producer.send(topic, value, key)

    return _kmq(job, "os", send)


def kmq_send_threads(job: Job) -> Measure:
    """Record by record, from ten threads that share the producer."""
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)

    def send(producer: Any, topic: str) -> None:
        def send_some(first: int) -> None:
            for value, key in zip(values[first::THREADS], keys[first::THREADS], strict=True):
                producer.send(topic, value, key)

        _in_threads(send_some)

    return _kmq(job, "os", send)


def _in_threads(send_some: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(send_some, range(THREADS)))


def kmq_send_kept(job: Job) -> Measure:
    """Record by record, every future kept and looked at in the end.

    Python's garbage collector walks over what is kept; that is a part of the figure.
    """
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)

    def send(producer: Any, topic: str) -> None:
        futures = [
            producer.send(topic, value, key) for value, key in zip(values, keys, strict=True)
        ]
        producer.flush()
        if not all(future.done() for future in futures):
            raise RuntimeError("flushed, but a future is not done")

    return _kmq(job, "os", send)


def kmq_send_callback(job: Job) -> Measure:
    """Record by record, with a delivery callback each."""
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)

    def send(producer: Any, topic: str) -> None:
        delivered = 0

        def on_delivery(error: object, _: object) -> None:
            nonlocal delivered
            delivered += error is None

        for value, key in zip(values, keys, strict=True):
            producer.send(topic, value, key, on_delivery=on_delivery)
        producer.flush()
        if delivered != len(values):
            raise RuntimeError(f"{delivered} of {len(values)} delivered")

    return _kmq(job, "os", send)


def kmq_send_batch(job: Job) -> Measure:
    """A thousand at a time, from Python lists."""
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)
    starts = range(0, len(values), BATCH)
    batches = [(values[at : at + BATCH], keys[at : at + BATCH]) for at in starts]

    def send(producer: Any, topic: str) -> None:
        for some, their_keys in batches:
            producer.send_batch(topic, some, their_keys)

    return _kmq(job, "os", send)


def kmq_send_arrow(job: Job) -> Measure:
    """Ten thousand at a time, as Arrow."""
    return _kmq(job, "os", _arrow_flushed(job))


def kmq_send_arrow_fsync(job: Job) -> Measure:
    """The same onto the disk, flushed once at the end."""
    return _kmq(job, "fsync", _arrow_flushed(job))


def kmq_send_arrow_fsync_each(job: Job) -> Measure:
    """The same onto the disk, each batch waited for before the next."""
    batches = dataset.arrow_batches(job.sizes.records, ARROW_BATCH)

    def send(producer: Any, topic: str) -> None:
        for batch in batches:
            producer.send_arrow(topic, batch).result()

    return _kmq(job, "fsync", send)


def _arrow_flushed(job: Job) -> Callable[[Any, str], None]:
    batches = dataset.arrow_batches(job.sizes.records, ARROW_BATCH)

    def send(producer: Any, topic: str) -> None:
        for batch in batches:
            producer.send_arrow(topic, batch)

    return send


# --- Kafka


def _kafka(job: Job, send: Callable[[Any, str], None]) -> Measure:
    from benchmarks.peers import topics

    def measure() -> Sample:
        topic = topics.create(job.broker)
        producer = topics.producer(job.broker, topic)
        producer.produce(topic, b"first")
        producer.flush()
        with stopwatch() as watch:
            send(producer, topic)
            producer.flush()
        topics.check(job.broker, topic, job.sizes.records + 1)
        topics.delete(job.broker, topic)
        return watch.rate(job.sizes.records)

    return measure


def kafka_produce(job: Job) -> Measure:
    """confluent-kafka's produce, with nobody asking what became of a record."""
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)

    def send(producer: Any, topic: str) -> None:
        produce = producer.produce
        for at, (value, key) in enumerate(zip(values, keys, strict=True)):
            produce(topic, value, key)
            if at % BATCH == 0:
                producer.poll(0)

    return _kafka(job, send)


def kafka_callback(job: Job) -> Measure:
    """The same with a delivery callback each, which is what a future tells."""
    return _kafka_called_back(job, keep=False)


def kafka_callback_threads(job: Job) -> Measure:
    """The same from ten threads that share the producer."""
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)

    def send(producer: Any, topic: str) -> None:
        delivered = itertools.count()  # one call, which no other thread divides

        def on_delivery(error: object, _: object) -> None:
            if error is None:
                next(delivered)

        def send_some(first: int) -> None:
            some = zip(values[first::THREADS], keys[first::THREADS], strict=True)
            for at, (value, key) in enumerate(some):
                producer.produce(topic, value, key, on_delivery=on_delivery)
                if at % BATCH == 0:
                    producer.poll(0)

        _in_threads(send_some)
        producer.flush()
        if (count := next(delivered)) != len(values):
            raise RuntimeError(f"{count} of {len(values)} delivered")

    return _kafka(job, send)


def kafka_callback_kept(job: Job) -> Measure:
    """The same with a callback that keeps every message, as others keep every future."""
    return _kafka_called_back(job, keep=True)


def _kafka_called_back(job: Job, *, keep: bool) -> Measure:
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)

    def send(producer: Any, topic: str) -> None:
        delivered = 0
        kept: list[object] = []

        def count(error: object, _: object) -> None:
            nonlocal delivered
            delivered += error is None

        def keep_it(error: object, message: object) -> None:
            if error is None:
                kept.append(message)

        produce, on_delivery = producer.produce, keep_it if keep else count
        for at, (value, key) in enumerate(zip(values, keys, strict=True)):
            produce(topic, value, key, on_delivery=on_delivery)
            if at % BATCH == 0:
                producer.poll(0)
        producer.flush()
        if delivered + len(kept) != len(values):
            raise RuntimeError(f"{delivered + len(kept)} of {len(values)} delivered")

    return _kafka(job, send)


def kafka_produce_batch(job: Job) -> Measure:
    """confluent-kafka's produce_batch, ten thousand at a time."""
    values, keys = dataset.values(job.sizes.records), dataset.keys(job.sizes.records)
    messages = [{"value": value, "key": key} for value, key in zip(values, keys, strict=True)]
    batches = [messages[at : at + 10_000] for at in range(0, len(messages), 10_000)]

    def send(producer: Any, topic: str) -> None:
        for batch in batches:
            producer.produce_batch(topic, batch)

    return _kafka(job, send)


# --- the limit: the bytes of the same Arrow batches, straight to a file


def _disk(job: Job, write: Callable[[int, list[pa.Buffer]], None]) -> Measure:
    batches = dataset.arrow_batches(job.sizes.records, ARROW_BATCH)
    messages = [batch.serialize() for batch in batches]

    def measure() -> Sample:
        with scratch.empty(job) as file, stopwatch() as watch:
            write(file, messages)
        return watch.rate(job.sizes.records)

    return measure


def disk_write(job: Job) -> Measure:
    """Written, not synced."""

    def write(file: int, messages: list[pa.Buffer]) -> None:
        for message in messages:
            os.write(file, message)

    return _disk(job, write)


def disk_sync_once(job: Job) -> Measure:
    """Written, then one fdatasync."""

    def write(file: int, messages: list[pa.Buffer]) -> None:
        for message in messages:
            os.write(file, message)
        os.fdatasync(file)

    return _disk(job, write)


def disk_sync_each(job: Job) -> Measure:
    """Written, with an fdatasync after each batch."""

    def write(file: int, messages: list[pa.Buffer]) -> None:
        for message in messages:
            os.write(file, message)
            os.fdatasync(file)

    return _disk(job, write)
