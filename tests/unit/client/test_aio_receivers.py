"""Queues in asyncio: who waits for records, and who answers at the same time.

Finds: answers that wait for those who receive, waits that look again and again though nothing
happens, and waits that keep others waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.client.queues.queue import Queue
from kmq_storage import limits

#: How a handle receives: how a wait is begun, and what a message comes by.
_KINDS = ("receive", "receive_arrow", "keyed")


class _Waiting:
    """A handle of one kind, how to wait with it, and how often its thread was asked."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        self.calls = Counter[str]()
        owner = KeyedQueues if kind == "keyed" else Queue
        name = "_receive_arrow" if kind == "receive_arrow" else "_receive"
        monkeypatch.setattr(limits, "WAIT_RECHECK", 3_600.0)  # one that is not woken sleeps on
        monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, receive: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            self.calls["began"] += 1
            try:
                return receive(*arguments, **options)
            finally:
                self.calls["ended"] += 1

        return counting

    def run(self, work: Callable[[aio.Store, Any], Awaitable[None]], url: str) -> None:
        """Some work with a handle, that has to end."""

        async def opened() -> None:
            async with aio.open(url) as store:
                await store.create_queue("q")
                keyed = self.kind == "keyed"
                async with store.keyed_queues("k") if keyed else store.queue("q") as handle:
                    await work(store, handle)

        asyncio.run(asyncio.wait_for(opened(), 60))

    async def receive(self, handle: Any, timeout: float | None) -> list[bytes]:
        """The values of what came."""
        if self.kind == "keyed":
            return [each.value for each in await handle.receive("a", timeout=timeout)]
        if self.kind == "receive":
            return [each.value for each in await handle.receive(timeout=timeout)]
        table = await handle.receive_arrow(1, timeout=timeout)
        return table["value"].to_pylist() if table.num_rows else []

    async def send(self, store: aio.Store, value: bytes) -> None:
        """A message for who waits."""
        if self.kind == "keyed":
            async with store.keyed_queues("k") as queues:
                await queues.put("a", value)
        else:
            async with store.producer() as producer:
                await producer.send_to_queue("q", value)


@pytest.fixture(params=_KINDS)
def waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> _Waiting:
    """A handle of each kind."""
    return _Waiting(request.param, monkeypatch)


def test_who_waits_sleeps_until_something_comes(store_url: str, waiting: _Waiting):
    async def work(store: aio.Store, handle: Any) -> None:
        first = asyncio.create_task(waiting.receive(handle, None))
        await asyncio.sleep(1.0)
        assert waiting.calls["began"] == 1
        await waiting.send(store, b"1")
        assert await first == [b"1"]

    waiting.run(work, store_url)


def test_who_does_not_want_to_wait_does_not_wait_for_who_does(store_url: str, waiting: _Waiting):
    async def work(store: aio.Store, handle: Any) -> None:
        first = asyncio.create_task(waiting.receive(handle, None))
        await asyncio.sleep(0.05)
        for _ in range(5):
            assert await waiting.receive(handle, 0.0) == []
        await asyncio.sleep(0.5)
        assert waiting.calls["began"] <= 16  # for each of them, and twice behind it, once for short
        await waiting.send(store, b"1")
        assert await first == [b"1"]

    waiting.run(work, store_url)


def test_a_wait_that_is_cancelled_frees_its_thread_and_takes_nothing(
    store_url: str, waiting: _Waiting
):
    async def work(store: aio.Store, handle: Any) -> None:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting.receive(handle, None), 0.01)
        while waiting.calls["ended"] < waiting.calls["began"]:
            await asyncio.sleep(0.01)
        await waiting.send(store, b"1")
        assert await waiting.receive(handle, None) == [b"1"]

    waiting.run(work, store_url)


def test_several_tasks_that_wait_all_get_what_comes(store_url: str, waiting: _Waiting):
    async def work(store: aio.Store, handle: Any) -> None:
        tasks = [asyncio.create_task(waiting.receive(handle, None)) for _ in range(5)]
        assert await waiting.receive(handle, 0.01) == []
        for number in range(5):
            await waiting.send(store, b"%d" % number)
        got = [value for some in await asyncio.gather(*tasks) for value in some]
        assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]

    waiting.run(work, store_url)


def test_waits_of_many_tasks_end_in_time(store_url: str, waiting: _Waiting):
    async def work(store: aio.Store, handle: Any) -> None:
        begun = time.monotonic()
        tasks = [asyncio.create_task(waiting.receive(handle, 0.4)) for _ in range(150)]
        assert [await each for each in tasks] == [[]] * 150
        assert time.monotonic() - begun < 20.0  # one after the other it would be 30 s and more

    waiting.run(work, store_url)


def test_many_tasks_that_wait_for_the_same_do_not_all_look_at_each_call(
    store_url: str, waiting: _Waiting
):
    async def work(store: aio.Store, handle: Any) -> None:
        tasks = [asyncio.create_task(waiting.receive(handle, None)) for _ in range(20)]
        await asyncio.sleep(0.1)
        begun = waiting.calls["began"]
        for number in range(20):
            await waiting.send(store, b"%d" % number)
        await asyncio.gather(*tasks)
        if waiting.kind != "keyed":  # they might wait for different ones
            assert begun <= 40
            assert waiting.calls["began"] - begun <= 60

    waiting.run(work, store_url)


def test_what_is_there_is_got_at_once_while_many_wait_for_other_keyed_queues(store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as store, store.keyed_queues("k") as queues:
            await queues.put("there", b"1")
            tasks = [asyncio.create_task(queues.receive(f"q{n}", timeout=None)) for n in range(150)]
            await asyncio.sleep(0.3)
            begun = time.monotonic()
            (found,) = await queues.receive("there", timeout=60)
            assert time.monotonic() - begun < 20.0  # in turns of 0.2 s it would be 30 s
            assert found.value == b"1"
            for task in tasks:
                task.cancel()

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_task_of_a_loop_that_stands_still_does_not_keep_others_looking(
    store_url: str, waiting: _Waiting
):
    async def work(store: aio.Store, handle: Any) -> None:
        still = asyncio.new_event_loop()
        left = still.create_task(waiting.receive(handle, 0.01))
        await asyncio.to_thread(still.run_until_complete, asyncio.sleep(0))
        await asyncio.sleep(0.1)
        begun = waiting.calls["began"]
        assert await waiting.receive(handle, 1.0) == []
        assert waiting.calls["began"] - begun < 60
        await asyncio.to_thread(still.run_until_complete, left)
        still.close()

    waiting.run(work, store_url)


def test_who_waits_is_told_at_once_that_its_handle_is_closed(store_url: str, waiting: _Waiting):
    async def work(store: aio.Store, handle: Any) -> None:
        first = asyncio.create_task(waiting.receive(handle, None))
        await asyncio.sleep(0.05)
        await handle.close()
        with pytest.raises(kmq.ClosedError):
            await first
        with pytest.raises(kmq.ClosedError):
            await waiting.receive(handle, 0.0)

    waiting.run(work, store_url)


def test_a_queue_may_be_waited_for_in_two_event_loops_at_once(store_url: str, waiting: _Waiting):
    async def work(store: aio.Store, handle: Any) -> None:
        first = asyncio.create_task(waiting.receive(handle, None))
        await asyncio.sleep(0.05)
        other = asyncio.to_thread(asyncio.run, waiting.receive(handle, None))
        second = asyncio.create_task(other)
        await asyncio.sleep(0.05)
        assert await waiting.receive(handle, 0.0) == []
        for value in (b"1", b"2"):
            await waiting.send(store, value)
        assert sorted(await first + await second) == [b"1", b"2"]

    waiting.run(work, store_url)


def test_a_task_that_waits_for_records_keeps_no_other_call_of_its_queue_waiting(
    store_url: str,
):
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


def test_an_awaited_call_makes_each_delivery_once(store_url: str, monkeypatch: pytest.MonkeyPatch):
    made, receive = list[object](), Queue._receive

    def keeping(*arguments: Any, **options: Any) -> Any:
        made.extend(found := receive(*arguments, **options))
        return found

    monkeypatch.setattr(Queue, "_receive", keeping)

    async def play() -> None:
        async with aio.open(store_url) as store, store.producer() as producer:
            await store.create_queue("q")
            await producer.send_to_queue("q", b"1")
            async with store.queue("q") as queue:
                (held,) = await queue.receive()
                assert held is made[0]
                await held.ack()

    asyncio.run(play())
