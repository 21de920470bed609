"""Awaited sends wait for no others. Finds a task that lingers though nobody is about to send."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

import kmq_spark as kmq
from kmq_spark import aio

_HOURS = 3600.0


@pytest.mark.parametrize(
    "send",
    [
        lambda producer: producer.send("t", b"1"),
        lambda producer: producer.send_batch("t", [b"1"]),
        lambda producer: asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(50))),
    ],
    ids=["one", "a batch", "many at once"],
)
def test_an_awaited_send_does_not_linger(
    store: kmq.Store, store_url: str, send: Callable[[aio.Producer], Awaitable[object]]
):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer(linger=_HOURS) as producer:
            await send(producer)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert store.offsets("t")[0][1] in (1, 50)


def test_a_send_that_is_cancelled_leaves_no_other_lingering(store: kmq.Store, store_url: str):
    store.create_topic("t")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer(linger=_HOURS) as producer:
            go_on = threading.Event()
            busy = asyncio.ensure_future(producer._run(go_on.wait))
            await asyncio.sleep(0)
            sends = [asyncio.ensure_future(producer.send("t", b"%d" % n)) for n in range(4)]
            await asyncio.sleep(0)
            sends[3].cancel()
            sends[2].cancel()
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(busy, *sends[:2])

    asyncio.run(asyncio.wait_for(work(), 60))
    assert store.offsets("t")[0][1] == 2
