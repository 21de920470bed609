"""Tasks of asyncio that are cancelled, or give up, during a call: the handle stays usable.

Finds: a transaction that nobody ends, a cancelled commit that still runs when the next transaction
begins, records that a closed queue keeps, errors that nobody asked for on the screen.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.client.orderly.reading import Reading
from kmq_spark.client.queues.queue import Queue
from kmq_spark.client.sending.transaction import Transaction
from tests.unit.client.stored import values


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


class Gate:
    """Holds a call up until it is told to go on."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, *, after: bool = False
    ) -> None:
        """`after`: hold it up before it returns."""
        self._reached, self._opened, self._after = threading.Event(), threading.Event(), after
        monkeypatch.setattr(owner, name, self._held(getattr(owner, name)))

    def _held(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def held(*arguments: Any, **options: Any) -> Any:
            found = call(*arguments, **options) if self._after else None
            self._reached.set()
            assert self._opened.wait(30)
            return found if self._after else call(*arguments, **options)

        return held

    async def reached(self) -> None:
        """Wait until a call is held up."""
        await asyncio.to_thread(self._reached.wait, 30)

    def open(self) -> None:
        """Let the call go on."""
        self._opened.set()

    async def cancel(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task whose call is held up, and let the call go on."""
        await self.reached()
        task.cancel()
        await asyncio.sleep(0.01)
        self.open()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("step", ["begin", "end"])
def test_a_producer_goes_on_when_a_task_is_cancelled_while_its_transaction_begins_or_ends(
    store: kmq.Store, store_url: str, monkeypatch: pytest.MonkeyPatch, step: str
):
    store.create_topic("a")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:

            async def send() -> None:
                async with producer.transaction() as tx:
                    await tx.send("a", b"1")

            gate = Gate(monkeypatch, Transaction, step)
            await gate.cancel(asyncio.create_task(send()))
            await producer.send("a", b"2")

    _run(work())
    assert values(store, "a") == ([b"2"] if step == "begin" else [b"1", b"2"])


@pytest.mark.parametrize("ends", ["abort", "commit"])
def test_a_transaction_ends_though_the_call_that_ends_it_is_cancelled_before_its_turn(
    store: kmq.Store, store_url: str, monkeypatch: pytest.MonkeyPatch, ends: str
):
    store.create_topic("a")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            tx = await producer.begin_transaction()
            gate = Gate(monkeypatch, Transaction, "send")
            sending = asyncio.create_task(tx.send("a", b"1"))
            await gate.reached()
            end = getattr(producer, f"{ends}_transaction")
            ending = asyncio.create_task(end())  # behind the send, in the producer's thread
            await asyncio.sleep(0)
            ending.cancel()
            await gate.cancel(sending)
            with pytest.raises(asyncio.CancelledError):
                await ending
            async with producer.transaction() as tx:
                await tx.send("a", b"2")

    _run(work())
    assert values(store, "a") == ([b"2"] if ends == "abort" else [b"1", b"2"])


def test_what_a_cancelled_task_received_is_free_though_its_queue_is_closed_meanwhile(
    store: kmq.Store, store_url: str, monkeypatch: pytest.MonkeyPatch
):
    store.create_queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"1").result()

    async def work() -> None:
        async with aio.open(store_url) as twin:
            queue = await twin.queue("q")
            gate = Gate(monkeypatch, Queue, "_received")
            waiting = asyncio.create_task(queue.receive(timeout=None))
            await gate.reached()
            await asyncio.gather(gate.cancel(waiting), queue.close())

    _run(work())
    (held,) = store.queue("q").receive(timeout=0)
    assert held.delivery_count == 1


@pytest.mark.parametrize("closed", ["handle", "store"])
@pytest.mark.parametrize("call", ["receive", "receive_arrow", "keyed"])
def test_who_closes_waits_until_what_cancelled_calls_received_is_given_back(
    store: kmq.Store, store_url: str, monkeypatch: pytest.MonkeyPatch, call: str, closed: str
):
    keyed = store.keyed_queues("k")
    keyed.put_batch(["a"] * 5, [b"x"] * 5)
    store.create_queue("q")
    with store.producer() as producer:
        for _ in range(5):
            producer.send_to_queue("q", b"x")

    async def work() -> None:
        twin = await aio.open(store_url)
        handle: Any = await (twin.keyed_queues("k") if call == "keyed" else twin.queue("q"))
        owner = KeyedQueues if call == "keyed" else Queue
        name = "_receive_arrow" if call == "receive_arrow" else "_receive"
        gate = Gate(monkeypatch, owner, name, after=True)
        receive = {"keyed": partial(handle.receive, "a")}.get(call) or getattr(handle, call)
        task = asyncio.create_task(receive(3))
        await gate.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        closing = asyncio.create_task((handle if closed == "handle" else twin).close())
        await asyncio.wait([closing], timeout=0.2)
        assert not closing.done()
        gate.open()
        await closing
        free = keyed.receive("a", 10) if call == "keyed" else store.queue("q").receive(10)
        assert [each.delivery_count for each in free] == [1] * 5
        await twin.close()

    _run(work())


def test_an_orderly_consumer_whose_opening_was_cancelled_is_no_member_and_hears_of_nothing(
    store: kmq.Store, store_url: str, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t")
    heard: list[object] = []

    def listener(*given: object) -> kmq.OrderlyStatus:
        heard.append(given)
        return kmq.OrderlyStatus.SUCCESS

    async def work() -> None:
        gate = Gate(monkeypatch, Reading, "begin")
        async with aio.open(store_url) as twin:
            opening = twin.orderly_consumer("g", ["t"], listener)
            await gate.cancel(asyncio.create_task(opening.__aenter__()))
            with store.producer() as producer:
                producer.send("t", b"v").result()
            assert not any(group.members for group in store.groups())
            assert heard == []

    _run(work())


def test_a_wait_that_is_given_up_and_closed_says_nothing(
    store: kmq.Store, store_url: str, caplog: pytest.LogCaptureFixture
):
    store.create_queue("q")

    async def work() -> None:
        async with aio.open(store_url) as twin, twin.queue("q") as queue:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(queue.receive(timeout=None), 0.01)

    gc.collect()  # what the tests before this one left is told now
    with caplog.at_level(logging.ERROR):
        caplog.clear()
        _run(work())
        gc.collect()
    assert caplog.records == []


def test_an_iteration_goes_on_after_a_wait_that_was_given_up(store: kmq.Store, store_url: str):
    async def work() -> None:
        async with aio.open(store_url) as twin, twin.producer() as producer:
            consumer = await twin.consumer(topics=["t"])
            records = aiter(consumer)
            for turn in (b"1", b"2"):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(records), 0.05)
                await producer.send("t", turn)
                assert (await anext(records)).value == turn
            await consumer.close()
            assert [record async for record in records] == []

    store.create_topic("t")
    _run(work())


def test_a_close_that_takes_too_long_says_so_and_ends_later(store: kmq.Store, store_url: str):
    store.create_topic("t")
    go_on = threading.Event()

    def partitioner(topic: str, key: bytes | None, partitions: int) -> int:
        go_on.wait(30)
        return 0

    async def play() -> None:
        async with (
            aio.open(store_url) as twin,
            twin.producer(partitioner=partitioner) as producer,
        ):
            sent = asyncio.create_task(producer.send("t", b"v", b"k"))
            while len(producer) == 0:
                await asyncio.sleep(0.001)
            with pytest.raises(kmq.KmqTimeoutError, match="1 records"):
                await producer.close(timeout=0.01)
            go_on.set()
            assert (await sent).offset == 0

    _run(play())
