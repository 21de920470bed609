"""Queues in asyncio: who waits for records, and who answers at the same time.

Finds: answers that wait for those who receive.
"""

from __future__ import annotations

import asyncio

import pytest

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
