"""Keyed queues for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, SupportsIndex

import pyarrow as pa

from kmq_spark.aio.handles import GivingWay, Receiver
from kmq_spark.client.keyed import queues as keyed_queues
from kmq_spark.client.keyed import receiving as keyed_receiving
from kmq_spark.client.queues import delivery as queue_delivery
from kmq_spark.errors import KmqError

#: What can be iterated over and is one thing.
_WHOLE = (queue_delivery.Delivery, pa.Table, pa.RecordBatch)


class KeyedQueues(Receiver[keyed_queues.KeyedQueues], twin=keyed_queues.KeyedQueues):
    """`kmq_spark.KeyedQueues` for asyncio: each of its methods is here too, to be awaited."""

    def __init__(self, handle: keyed_queues.KeyedQueues) -> None:
        super().__init__(handle, GivingWay(handle._wake, alike=False))
        #: The topic.
        self.name = handle.name

    async def put(self, queue: str | bytes, message: bytes | str) -> int:
        """Append a message to a queue; return its index once it is durable."""
        put = await self._run(self._handle.put, queue, message)
        await _done(put)
        return await self._run(put.result)  # the index may have to be read

    async def put_batch(
        self, queues: Sequence[str | bytes], messages: Sequence[bytes | str]
    ) -> list[int]:
        """Append messages to queues, all or none; return their indexes once they are durable."""
        return await self._run(_put_all, self._handle.put_batch, queues, messages)

    async def put_arrow(self, batch: pa.RecordBatch | pa.Table) -> list[int]:
        """Append the messages of a RecordBatch or Table with the columns `queue` and `value`."""
        return await self._run(_put_all, self._handle.put_arrow, batch)

    async def receive(
        self,
        queue: str | bytes,
        max_records: int = 1,
        timeout: float | None = 0.0,
        *,
        group: str = "default",
        lock_timeout: float | timedelta = 30.0,
    ) -> list[KeyedDelivery]:
        """Receive the oldest messages of a queue that its group neither acknowledged nor holds."""
        receive = partial(
            self._handle._receive, queue, max_records, group=group, lock_timeout=lock_timeout
        )
        found = await self._received(receive, _give_back, timeout)
        return [KeyedDelivery(self, each) for each in found]

    async def ack(self, deliveries: KeyedDelivery | Iterable[KeyedDelivery]) -> None:
        """Acknowledge one delivery or several, of one group, in one commit."""
        await self._run(self._handle.ack, plain_deliveries(deliveries))


class KeyedDelivery:
    """`kmq_spark.KeyedDelivery` for asyncio: its answers are awaited."""

    def __init__(self, queues: KeyedQueues, delivery: keyed_receiving.KeyedDelivery) -> None:
        self._queues = queues
        self.delivery = delivery

    def __repr__(self) -> str:
        return f"aio.{self.delivery!r}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.delivery, name)

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        self.delivery.__reduce_ex__(protocol)

    async def ack(self) -> None:
        """Acknowledge the message: its group never gets it again."""
        await self._queues._run(self.delivery.ack)

    async def nack(self, delay: float | timedelta = 0.0) -> None:
        """Have the message handed out again, after `delay` seconds."""
        await self._queues._run(self.delivery.nack, delay)

    async def extend(self, seconds: float | timedelta) -> None:
        """Hold the message until `seconds` from now."""
        await self._queues._run(self.delivery.extend, seconds)


def plain_deliveries(deliveries: Any) -> Any:
    """What is behind deliveries of keyed queues for asyncio; everything else as it is."""
    if isinstance(deliveries, KeyedDelivery):
        return deliveries.delivery
    if isinstance(deliveries, _WHOLE) or not isinstance(deliveries, Iterable):
        return deliveries
    return [each.delivery if isinstance(each, KeyedDelivery) else each for each in deliveries]


def _give_back(received: Sequence[keyed_receiving.KeyedDelivery]) -> None:
    if received:
        with suppress(KmqError):  # else they come again when their lock ends
            received[0]._receiver.give_back(received)


def _put_all(put: Any, *arguments: Any) -> list[int]:
    """The indexes, worked out in the thread that puts."""
    return list(put(*arguments))


async def _done(future: Future[int]) -> None:
    """Wait for a future without asking for its result."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop ended before
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(tell)
    await done.wait()
