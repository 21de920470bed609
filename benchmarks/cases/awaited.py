"""Batch calls of `kmq_spark.aio` beside the plain ones, one or two in flight at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from benchmarks import dataset, stores
from benchmarks.clock import stopwatch
from benchmarks.job import Job, Measure, Sample
from kmq_spark import aio

_BATCH, _ARROW_BATCH = 1_000, 10_000
_QUEUE = "work"
_IN_FLIGHT = 2
#: How often the records are sent.
_TIMES = 3


def plain(job: Job) -> Measure:
    """Lists of a thousand, Arrow of ten thousand rows, and tables as consumers and queues give."""
    rows, arrow, lists = _data(job)

    def measure() -> Sample:
        with stores.fresh(job, "os") as (store, _), store.producer() as producer:
            with stopwatch() as listed:
                for values, keys in lists:
                    producer.send_batch(stores.TOPIC, values, keys).result()
            with stopwatch() as sent:
                for batch in arrow:
                    producer.send_arrow(stores.TOPIC, batch).result()
            with stopwatch() as sent_by_two:
                earlier: deque[Future[Any]] = deque()
                for batch in arrow:
                    earlier.append(producer.send_arrow(stores.TOPIC, batch))
                    if len(earlier) == _IN_FLIGHT:
                        earlier.popleft().result()
                for future in earlier:
                    future.result()
            with store.consumer(topics=[stores.TOPIC]) as consumer, stopwatch() as read:
                left = _TIMES * rows
                while left:
                    left -= _rows_of(consumer.consume_arrow())
            store.create_queue(_QUEUE, topics=[stores.TOPIC], lock_timeout=600)
            with store.queue(_QUEUE) as queue:
                with stopwatch() as received:
                    for _ in lists:
                        queue.ack(queue.receive(_BATCH))
                with stopwatch() as received_arrow:
                    while table := queue.receive_arrow():
                        queue.ack(table)
        return _sample(rows, listed, sent, sent_by_two, read, received, received_arrow)

    return measure


def awaited(job: Job) -> Measure:
    """The same, awaited."""
    rows, arrow, lists = _data(job)

    async def all_calls(path: str) -> Sample:
        async with aio.open(path, durability="os") as store, store.producer() as producer:

            async def send_each(batches: list[Any]) -> None:
                for batch in batches:
                    await producer.send_arrow(stores.TOPIC, batch)

            with stopwatch() as listed:
                for values, keys in lists:
                    await producer.send_batch(stores.TOPIC, values, keys)
            with stopwatch() as sent:
                await send_each(arrow)
            with stopwatch() as sent_by_two:
                await asyncio.gather(*(send_each(arrow[n::_IN_FLIGHT]) for n in range(_IN_FLIGHT)))
            async with store.consumer(topics=[stores.TOPIC]) as consumer:
                with stopwatch() as read:
                    left = _TIMES * rows
                    while left:
                        left -= _rows_of(await consumer.consume_arrow())
            await store.create_queue(_QUEUE, topics=[stores.TOPIC], lock_timeout=600)
            async with store.queue(_QUEUE) as queue:
                with stopwatch() as received:
                    for _ in lists:
                        await queue.ack(await queue.receive(_BATCH))
                with stopwatch() as received_arrow:
                    while table := await queue.receive_arrow():
                        await queue.ack(table)
        return _sample(rows, listed, sent, sent_by_two, read, received, received_arrow)

    def measure() -> Sample:
        with stores.fresh(job, "os") as (_, path):
            return asyncio.run(all_calls(path))

    return measure


def _data(job: Job) -> tuple[int, list[Any], list[tuple[list[bytes], list[bytes]]]]:
    rows = job.sizes.records
    values, keys = dataset.values(rows), dataset.keys(rows)
    starts = range(0, rows, _BATCH)
    lists = [(values[at : at + _BATCH], keys[at : at + _BATCH]) for at in starts]
    return rows, list(dataset.arrow_batches(rows, _ARROW_BATCH)), lists


def _rows_of(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)


def _sample(rows: int, *took: Any) -> Sample:
    listed, sent, sent_by_two, read, received, received_arrow = (each.seconds for each in took)
    return {
        "batch_rate": rows / listed,
        "arrow_rate": rows / sent,
        "arrow_rate_by_two": rows / sent_by_two,
        "read_rate": _TIMES * rows / read,
        "receive_rate": rows / received,
        "receive_arrow_rate": (_TIMES - 1) * rows / received_arrow,
    }
