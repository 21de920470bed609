"""Queues in asyncio: who waits for records, and who answers at the same time.

Finds: answers that wait for those who receive.
"""

from __future__ import annotations

import asyncio

import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.aio import handles


def test_a_task_that_waits_for_records_keeps_no_other_call_of_its_queue_waiting(
    store_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handles, "_SLICE", 3_600.0)  # it waits and waits

    async def work() -> None:
        async with aio.open(store_url) as store, store.producer() as producer:
            await store.create_queue("q")
            await producer.send_to_queue("q", b"1")
            queue, keyed = await store.queue("q"), await store.keyed_queues("k")
            (held,) = await queue.receive()
            waiting = [
                asyncio.create_task(queue.receive(timeout=None)),
                asyncio.create_task(keyed.receive("inbox", timeout=None)),
            ]
            while not (queue._thread._threads and keyed._thread._threads):
                await asyncio.sleep(0.01)
            await held.ack()
            assert (await queue.stats()).acked == 1
            assert await keyed.put("other", b"2") == 0
            await producer.send_to_queue("q", b"3")
            await keyed.put("inbox", b"4")
            received = await asyncio.gather(*waiting)
            assert [each.value for some in received for each in some] == [b"3", b"4"]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_consumer_goes_on_in_another_event_loop(store_url: str):
    async def begin() -> tuple[aio.Store, aio.Consumer]:
        store = await aio.open(store_url)
        await store.create_topic("t")
        async with store.producer() as producer:
            await producer.send_batch("t", [b"%d" % n for n in range(40)])
        return store, await store.consumer(topics=["t"])

    async def take_in_turns(consumer: aio.Consumer) -> list[bytes | None]:
        taken = await asyncio.gather(consumer.consume(10), consumer.consume(10))
        return [each.value for some in taken for each in some]

    store, consumer = asyncio.run(begin())
    found = [each for _ in range(2) for each in asyncio.run(take_in_turns(consumer))]
    assert found == [b"%d" % n for n in range(40)]
    asyncio.run(store.close())


def test_two_event_loops_at_once_do_not_share_a_consumer(store_url: str):
    async def other(consumer: aio.Consumer) -> str:
        with pytest.raises(kmq.IllegalStateError) as refused:
            await consumer.consume(10, timeout=0.0)
        return str(refused.value)

    async def work() -> None:
        async with await aio.open(store_url) as store:
            await store.create_topic("t")
            async with await store.consumer(topics=["t"]) as consumer:
                await consumer.consume(10, timeout=0.0)
                told = await asyncio.to_thread(asyncio.run, other(consumer))
                assert "another event loop uses this consumer" in told
                assert await consumer.consume(10, timeout=0.0) == []

    asyncio.run(work())
