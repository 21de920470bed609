"""The asyncio twins: the same results as the plain ones, and an event loop that never waits.

Finds: sends that lose their order, a loop that is blocked, a cancelled wait that loses a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark import aio


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_the_whole_path_reads_as_the_plain_one(store_url: str):
    async def work() -> None:
        async with await aio.open(store_url) as store:
            topic = await store.create_topic("t", partitions=2)
            assert topic.partitions == 2
            async with store.producer() as producer:
                place = await producer.send("t", b"1", key=b"k", partition=1)
                assert (place.partition, place.offset) == (1, 0)
                assert len(await producer.send_batch("t", [b"2", b"3"], partition=1)) == 2
                rows = pa.table({"value": [b"4"]})
                assert (await producer.send_arrow("t", rows, partition=1)).offsets == {1: (3, 4)}
                assert await producer.flush() == 0
            async with store.consumer("g", topics=["t"]) as consumer:
                first = await consumer.poll()
                assert (first.value, first.offset) == (b"1", 0)
                assert [record.value for record in await consumer.consume(1)] == [b"2"]
                table = await consumer.consume_arrow()
                assert table["value"].to_pylist() == [b"3", b"4"]
                assert await consumer.poll() is None
                assert await consumer.consume(timeout=0.05) == []
                await consumer.commit()
                assert (await consumer.position())["t"][1] == 4
            assert (await store.describe_group("g")).committed["t"][1] == 4
            assert (await store.offsets("t"))[1] == (0, 4)

    _run(work())


def test_sends_at_once_keep_the_order_of_the_calls(store: kmq.Store, store_url: str):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            places = await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(200)))
            assert [place.offset for place in places] == list(range(200))

    _run(work())


def test_errors_are_raised_where_they_are_awaited(store_url: str):
    async def work() -> None:
        with pytest.raises(kmq.InvalidRequestError):
            await aio.open(store_url, durability="none")
        async with aio.open(store_url) as store:
            with pytest.raises(kmq.NotFoundError):
                await store.describe_topic("missing")
            with pytest.raises(kmq.NotFoundError):
                await store.consumer(topics=["missing"])
            producer = await store.producer()
            with pytest.raises(kmq.NotFoundError):
                await producer.send("missing", b"v")
            with pytest.raises(kmq.InvalidRequestError):
                await producer.send("t", 5)
            await producer.close()
            await producer.close()
            with pytest.raises(kmq.ClosedError):
                await producer.send("t", b"v")

    _run(work())


def test_iteration_leaves_the_loop_free_and_ends_when_closed(store: kmq.Store, store_url: str):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            consumer = await twin.consumer(topics=["t"])
            found = []

            async def read() -> None:
                found.extend([record.value async for record in consumer])

            reading = asyncio.create_task(read())
            for number in range(5):
                await producer.send("t", b"%d" % number)
            while sum((await consumer.lag())["t"].values()):
                await asyncio.sleep(0.01)
            await consumer.close()
            await reading
            assert found == [b"%d" % number for number in range(5)]

    _run(work())


def test_a_cancelled_wait_loses_no_record(store: kmq.Store, store_url: str):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.consumer(topics=["t"]) as consumer:
            for wait in (consumer.poll, consumer.consume, consumer.consume_arrow):
                waiting = asyncio.create_task(wait(timeout=None))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with store.producer() as producer:
                    await asyncio.to_thread(producer.send("t", b"v").result, 10)
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert (await consumer.poll(timeout=10)).value == b"v"
                assert await consumer.poll() is None

    _run(work())


def test_an_exception_in_the_block_is_seen_by_auto_commit(store: kmq.Store, store_url: str):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"v"] * 5)

    async def work() -> None:
        async with (
            aio.open(store_url) as twin,
            twin.consumer("g", topics=["t"], auto_commit=True) as consumer,
        ):
            await consumer.consume(2)
            await consumer.consume(2)
            raise RuntimeError("processing failed")

    with pytest.raises(RuntimeError, match="processing failed"):
        _run(work())
    assert store.describe_group("g").committed == {"t": {0: 2}}
