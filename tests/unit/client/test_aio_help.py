"""What `help`, completion and errors tell of the asyncio twins.

Finds: calls that hide their arguments behind `*arguments`, and handles that do not say that they
wait to be opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from inspect import iscoroutinefunction, signature

import pytest

import kmq_spark as kmq
from kmq_spark import aio


def test_help_shows_the_arguments_of_a_call(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.consumer() as consumer:
            producer = await store.producer()  # the store closes it
            for call, twin in (
                (store.create_topic, kmq.Store.create_topic),
                (store.consumer, kmq.Store.consumer),
                (consumer.seek, kmq.Consumer.seek),
                (producer.send, kmq.Producer.send),
                (producer.transaction().send, kmq.Producer.send),
                (producer.transaction().send_to_queue, kmq.Producer.send_to_queue),
            ):
                assert [*signature(call).parameters] == [*signature(twin).parameters][1:]
                assert call.__doc__

    asyncio.run(asyncio.wait_for(work(), 60))
    assert iscoroutinefunction(aio.Producer.send)


@pytest.mark.parametrize(
    "name", ["Consumer", "KeyedQueues", "OrderlyConsumer", "Producer", "Queue", "Store"]
)
def test_a_class_has_each_name_of_its_twin(name: str):
    own, twin = getattr(aio, name), getattr(kmq, name)
    assert [each for each in dir(twin) if each[0] != "_" and not hasattr(own, each)] == []


def test_a_call_that_needs_no_code_of_its_own_is_a_coroutine_function_with_the_twins_help():
    assert iscoroutinefunction(aio.Consumer.commit)
    assert signature(aio.Consumer.commit).parameters == signature(kmq.Consumer.commit).parameters
    assert aio.Consumer.commit.__doc__ == kmq.Consumer.commit.__doc__


def test_help_of_a_call_that_is_the_same_on_both_sides_is_the_same(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store:
            assert store.create_topic.__doc__ == kmq.Store.create_topic.__doc__

    asyncio.run(asyncio.wait_for(work(), 60))


def test_who_forgets_to_await_a_handle_is_told(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store:
            with pytest.raises(AttributeError, match="receive: this handle is not open yet; await"):
                await store.queue("q").receive()  # type: ignore[attr-defined]
            with pytest.raises(TypeError, match="this handle is not open yet; await"):
                aiter(store.consumer(topics=["t"]))

    asyncio.run(work())


def test_a_handle_that_is_entered_without_a_new_name_is_open(store_url: str):
    async def work() -> None:
        store = aio.open(store_url)
        async with store:
            await store.create_topic("t")  # type: ignore[attr-defined]
            producer = store.producer()  # type: ignore[attr-defined]
            async with producer:
                await producer.send("t", b"v")
            consumer = store.consumer(topics=["t"])  # type: ignore[attr-defined]
            async with consumer:
                assert [record.value async for record in _first(consumer)] == [b"v"]

    async def _first(consumer: AsyncIterable[kmq.Record]) -> AsyncIterator[kmq.Record]:
        async for record in consumer:
            yield record
            return

    asyncio.run(asyncio.wait_for(work(), 60))
