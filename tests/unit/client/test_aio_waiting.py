"""Consumers of asyncio that wait: they sleep, and give way to whoever needs their thread.

Finds: waits that look again and again though nothing happens, and waits that keep others waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.client.consuming.consumer import Consumer
from kmq_storage import limits
from kmq_storage.log.files.hint import Hint


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often consumers took; one that is not woken sleeps on."""
    monkeypatch.setattr(limits, "WAIT_RECHECK", 3_600.0)
    counted, take = Counter[str](), Consumer._take_records

    def counting(*arguments: Any, **options: Any) -> Any:
        counted["began"] += 1
        taken = take(*arguments, **options)
        counted["ended"] += 1
        return taken

    monkeypatch.setattr(Consumer, "_take_records", counting)
    return counted


def _run(url: str, work: Callable[[aio.Store, aio.Consumer], Coroutine[Any, Any, None]]) -> None:
    async def opened() -> None:
        async with aio.open(url) as store:
            await store.create_topic("t")
            async with await store.consumer("g", topics=["t"]) as consumer:
                await work(store, consumer)

    asyncio.run(asyncio.wait_for(opened(), 60))


async def _send(store: aio.Store, value: bytes) -> None:
    async with store.producer() as producer:
        await producer.send("t", value)


def test_a_consumer_that_waits_sleeps_until_something_comes(store_url: str, takes: Counter[str]):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        waiting = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(1.0)
        assert takes["began"] == 1
        await _send(store, b"1")
        record = await waiting
        assert record is not None
        assert record.value == b"1"

    _run(store_url, work)


def test_other_calls_of_a_consumer_that_waits_are_made_at_once(store_url: str, takes: Counter[str]):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        waiting = asyncio.create_task(consumer.poll(timeout=None))
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert await consumer.lag() == {"t": {0: 0}}
        await asyncio.sleep(0.5)
        assert takes["began"] <= 41  # behind each of them twice at most, once for short
        await _send(store, b"1")
        assert await waiting is not None
        await consumer.commit()

    _run(store_url, work)


def test_a_wait_that_is_slow_to_fall_asleep_gives_way_too(
    store_url: str, takes: Counter[str], monkeypatch: pytest.MonkeyPatch
):
    """Its thread has looked whether it is to end, and gets no processor until later."""
    sleep, about_to = Hint.sleep_while_written, threading.Event()

    def sleep_late(*arguments: Any) -> None:
        about_to.set()
        time.sleep(0.2)
        sleep(*arguments)

    monkeypatch.setattr(Hint, "sleep_while_written", sleep_late)

    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        waiting = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.to_thread(about_to.wait)
        assert await consumer.lag() == {"t": {0: 0}}
        await _send(store, b"1")
        assert await waiting is not None

    _run(store_url, work)


def test_several_tasks_that_wait_all_get_their_records(store_url: str, takes: Counter[str]):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        waiting = [asyncio.create_task(consumer.poll(timeout=None)) for _ in range(5)]
        assert await consumer.poll(timeout=0.01) is None
        for number in range(5):
            await _send(store, b"%d" % number)
        got = [record.value for record in await asyncio.gather(*waiting) if record]
        assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]

    _run(store_url, work)


def test_a_wait_that_is_cancelled_frees_its_thread(store_url: str, takes: Counter[str]):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(timeout=None), 0.01)
        while takes["ended"] < takes["began"]:
            await asyncio.sleep(0.01)
        await _send(store, b"1")
        record = await consumer.poll(timeout=None)
        assert record is not None
        assert record.value == b"1"

    _run(store_url, work)


def test_a_wait_ends_in_time_though_others_had_their_turn(store_url: str, takes: Counter[str]):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        waiting = asyncio.create_task(consumer.consume(timeout=0.2))
        await asyncio.sleep(0.05)
        await consumer.lag()
        assert await waiting == []

    _run(store_url, work)


def test_a_consumer_that_waits_is_closed_at_once(store_url: str, takes: Counter[str]):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        waiting = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(0.05)
        await consumer.close()
        with pytest.raises(kmq.ClosedError):
            await waiting

    _run(store_url, work)


@pytest.mark.parametrize("by", ["transaction", "producer"])
def test_a_transaction_commits_offsets_of_a_consumer_that_waits(
    store_url: str, takes: Counter[str], by: str
):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        await _send(store, b"1")
        assert await consumer.poll(timeout=None)
        takes.clear()
        waiting = asyncio.create_task(consumer.poll(timeout=None))
        while not takes["began"]:  # from then on it is in the consumer's thread
            await asyncio.sleep(0.01)
        async with store.producer() as producer, producer.transaction() as tx:
            if by == "transaction":
                await tx.commit_offsets(consumer)
            else:
                await producer.send_offsets_to_transaction({"t": {0: 1}}, consumer)
        assert await consumer.committed() == {"t": {0: 1}}
        await _send(store, b"2")
        record = await waiting
        assert record is not None
        assert record.value == b"2"

    _run(store_url, work)


def test_the_task_of_an_open_transaction_is_refused_a_wait_that_would_never_end(store_url: str):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        async with store.producer() as producer:
            async with producer.transaction() as tx:
                sent = [await tx.send("t", b"1"), await tx.send_batch("t", [b"2", b"3"])]
                for each in sent:
                    with pytest.raises(kmq.IllegalStateError, match="await it after the commit"):
                        await each
                elsewhere = asyncio.ensure_future(sent[0])  # another task may wait for the commit
                await asyncio.sleep(0.01)
            assert (await elsewhere).offset == (await sent[0]).offset == 0
            assert [each.offset for each in await sent[1]] == [1, 2]

    _run(store_url, work)


def test_who_would_wait_for_nothing_for_ever_is_told_so(store_url: str):
    async def work(store: aio.Store, consumer: aio.Consumer) -> None:
        await consumer.unsubscribe()
        for wait in (lambda: anext(aiter(consumer)), lambda: consumer.consume_arrow(timeout=None)):
            with pytest.raises(kmq.IllegalStateError, match="has no topics"):
                await wait()
        await consumer.close()
        assert [record async for record in consumer] == []

    _run(store_url, work)
