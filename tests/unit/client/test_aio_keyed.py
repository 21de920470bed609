"""The asyncio twin of receiving from keyed queues.

Finds: an answer that is not awaited, a wait that keeps its thread or loses what it took.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from contextlib import suppress
from typing import Any

import pytest

from kmq_spark import aio
from kmq_spark.errors import IllegalStateError, InvalidRequestError


def test_messages_of_keyed_queues_are_received_and_answered(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("inbox") as queues:
            waiting = asyncio.create_task(queues.receive("a", timeout=60))
            await queues.put_batch(["a", "a", "a"], [b"1", b"2", b"3"])
            (first,) = await waiting
            assert (first.value, first.delivery_count) == (b"1", 1)
            second, third = await queues.receive("a", 9, lock_timeout=60)
            await first.ack()
            await second.nack()
            await third.extend(90)
            (again,) = await queues.receive("a", 9, group="default")
            assert (again.index, again.delivery_count) == (1, 2)
            await queues.ack([again, third])
            assert await queues.lag("a") == 0
            cancelled = asyncio.create_task(queues.receive("a", timeout=None))
            await asyncio.sleep(0)
            cancelled.cancel()
            with suppress(asyncio.CancelledError):
                await cancelled
            await queues.put("a", b"4")
            assert [each.value for each in await queues.receive("a", timeout=60)] == [b"4"]

    asyncio.run(work())


def test_what_a_cancelled_receive_took_is_as_if_it_had_not_been_handed_out(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("inbox") as queues:
            await queues.put_batch(["a"] * 3, [b"1", b"2", b"3"])
            cancelled = asyncio.create_task(queues.receive("a", 9))
            await asyncio.sleep(0)
            time.sleep(0.3)
            cancelled.cancel()
            with suppress(asyncio.CancelledError):
                await cancelled
            found = await queues.receive("a", 9, timeout=60)
            assert [(each.index, each.delivery_count) for each in found] == [(0, 1), (1, 1), (2, 1)]

    asyncio.run(work())


@pytest.mark.parametrize("given", [None, 7, [7], ["a"]], ids=str)
def test_what_is_no_delivery_is_refused_by_name(store_url: str, given: Any):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("inbox") as queues:
            with pytest.raises(InvalidRequestError, match="ack takes what receive gives, not"):
                await queues.ack(given)

    asyncio.run(work())


def test_a_delivery_says_what_it_is_of_and_that_it_is_not_copied(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("inbox") as queues:
            await queues.put("a", b"1")
            (held,) = await queues.receive("a")
            assert repr(held) == "aio.KeyedDelivery(queue='a', index=0, delivery_count=1)"
            for call in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(IllegalStateError, match="a KeyedDelivery can't be pickled"):
                    call(held)

    asyncio.run(work())
