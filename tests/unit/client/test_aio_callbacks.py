"""Callbacks of consumers in asyncio: they run in the event loop, and may use their consumer.

Finds: callbacks that nobody awaits, and those that wait for the call that waits for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import aio

Partitions = dict[str, list[int]]


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topic `t` with ten records in each of its two partitions."""
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        for partition in range(2):
            producer.send_batch("t", [b"v"] * 10, partition=partition).result(10)
    return store


def test_on_assign_may_seek_and_on_revoke_may_commit(shop: kmq.Store, store_url: str):
    told: list[object] = []

    async def work() -> None:
        async def assigned(partitions: Partitions) -> None:
            await asyncio.sleep(0.01)
            await consumer.seek("t", 0, 7)
            told.append(("assigned", partitions, await consumer.position()))

        async def revoked(partitions: Partitions) -> None:
            await asyncio.gather(consumer.commit(), consumer.lag())
            told.append(("revoked", partitions))

        async with aio.open(store_url) as twin:
            consumer = await twin.consumer("g")
            await consumer.subscribe(["t"], on_assign=assigned, on_revoke=revoked)
            assert len(await consumer.consume(100)) == 13
            async with twin.consumer("g", topics=["t"]) as other:
                assert await consumer.assignment() == {"t": [0]}
                assert await other.committed() == {"t": {1: 10}}
            await consumer.close()

    _run(work())
    assert told == [
        ("assigned", {"t": [0, 1]}, {"t": {0: 7, 1: 0}}),
        ("revoked", {"t": [1]}),
        ("revoked", {"t": [0]}),
    ]
    assert shop.describe_group("g").committed == {"t": {0: 10, 1: 10}}


def test_another_subscription_with_the_same_callback_tells_it_of_what_is_new(
    shop: kmq.Store, store_url: str
):
    told: list[Partitions] = []
    shop.create_topic("other")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.consumer("g") as consumer:
            for topics in (["t"], ["t", "other"]):
                await consumer.subscribe(topics, on_assign=told.append)

    _run(work())
    assert told == [{"t": [0, 1]}, {"other": [0]}]


def test_a_plain_callback_runs_in_the_event_loop_too(shop: kmq.Store, store_url: str):
    threads: list[int] = []

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.consumer("g") as consumer:
            told = {"on_assign": lambda _: threads.append(threading.get_ident())}
            await consumer.subscribe(["t"], **told)
        assert threads == [threading.get_ident()]

    _run(work())


def test_what_would_wait_for_itself_is_refused_and_other_tasks_wait(
    shop: kmq.Store, store_url: str
):
    async def work() -> None:
        begun, refused = asyncio.Event(), []

        async def assigned(_: Partitions) -> None:
            begun.set()
            await asyncio.sleep(0.05)
            for call in (consumer.poll, consumer.consume, consumer.unsubscribe):
                with pytest.raises(kmq.IllegalStateError, match="callback") as raised:
                    await call()
                refused.append(raised)

        async with aio.open(store_url) as twin, twin.consumer("g") as consumer:
            subscribing = asyncio.create_task(
                consumer.subscribe(["t"], on_assign=assigned)  # type: ignore[arg-type]
            )
            await begun.wait()
            assert len(await consumer.consume(100)) == 20
            await subscribing
            assert len(refused) == 3

    _run(work())


def test_what_a_callback_raises_is_raised_by_the_call(shop: kmq.Store, store_url: str):
    async def work() -> None:
        async def assigned(_: Partitions) -> None:
            raise RuntimeError("my database is down")

        async with aio.open(store_url) as twin, twin.consumer("g") as consumer:
            with pytest.raises(RuntimeError, match="my database is down"):
                await consumer.subscribe(["t"], on_assign=assigned)
            assert len(await consumer.consume(100)) == 20

    _run(work())


def test_a_callback_may_close_its_consumer(shop: kmq.Store, store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as twin:
            consumer = await twin.consumer("g")
            await consumer.subscribe(["t"], on_assign=lambda _: consumer.close())
            with pytest.raises(kmq.ClosedError):
                await consumer.poll()
        assert shop.describe_group("g").members == []

    _run(work())


def test_a_callback_is_told_by_whoever_closes_the_store(shop: kmq.Store, store_url: str):
    told: list[Partitions] = []

    async def work() -> None:
        async with aio.open(store_url) as twin:
            consumer = await twin.consumer("g")
            await consumer.subscribe(["t"], on_revoke=told.append)
        assert told == [{"t": [0, 1]}]

    _run(work())


def test_when_its_event_loop_has_ended_a_callback_is_left_out_with_a_warning(
    shop: kmq.Store, store_url: str, caplog: pytest.LogCaptureFixture
):
    async def work() -> Any:
        twin = await aio.open(store_url)
        consumer = await twin.consumer("g")
        await consumer.subscribe(["t"], on_revoke=lambda _: None)
        return twin, consumer

    twin, _consumer = asyncio.run(work())
    asyncio.run(twin.close())
    assert "was not told of {'t': [0, 1]}" in caplog.text


def test_a_plain_consumer_refuses_what_it_can_not_await(shop: kmq.Store):
    async def assigned(_: Partitions) -> None: ...

    with shop.consumer("g") as consumer, pytest.raises(kmq.InvalidRequestError, match="await"):
        consumer.subscribe(["t"], on_assign=assigned)  # type: ignore[arg-type]
