"""The store for asyncio, and how to open it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from kmq_spark.aio.handles import H, Handle, Opening, R, T
from kmq_spark.aio.keyed import KeyedQueues
from kmq_spark.aio.receiving import AsyncListener, Consumer, OrderlyConsumer, Queue
from kmq_spark.aio.sending import Producer
from kmq_spark.client import store
from kmq_spark.client.opening import open_store
from kmq_spark.client.orderly.rules import OrderlyContext, OrderlyStatus
from kmq_spark.client.records.record import Record
from kmq_storage.model import Commit


def open(url: str | os.PathLike[str], **options: Any) -> Opening[Store]:  # noqa: A001 - its name
    """Open a store: `await` it, or use `async with`. Options as for `kmq_spark.open`."""

    async def opened() -> Store:
        return Store(await asyncio.to_thread(partial(open_store, url, **options)))

    return Opening(opened)


class Store(Handle[store.Store]):
    """`kmq_spark.Store` for asyncio: each of its methods is here too, to be awaited."""

    def read(self, topic: str, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        """Yield record batches, for `async for`; arguments as for `kmq_spark.Store.read`."""
        return self._each(partial(self._handle.read, topic, **options))

    def commits(self, start: int | None = None) -> AsyncIterator[Commit]:
        """Yield the commits of the log, for `async for`; see `kmq_spark.Store.commits`."""
        return self._each(partial(self._handle.commits, start))

    async def _each(self, found: Callable[[], Iterable[T]]) -> AsyncIterator[T]:
        """Yield what an iterator gives, with each step in the handle's thread."""
        steps = await self._run(lambda: iter(found()))
        while (step := await self._run(next, steps, None)) is not None:
            yield step

    def producer(self, **options: Any) -> Opening[Producer]:
        """Open a producer; options as for `kmq_spark.Store.producer`."""
        return self._opening(Producer, self._handle.producer, **options)

    def consumer(self, group: str | None = None, **options: Any) -> Opening[Consumer]:
        """Open a consumer; options as for `kmq_spark.Store.consumer`."""
        return self._opening(Consumer, self._handle.consumer, group, **options)

    def queue(self, name: str, **options: Any) -> Opening[Queue]:
        """Open a queue to receive from; options as for `kmq_spark.Store.queue`."""
        return self._opening(Queue, self._handle.queue, name, **options)

    def keyed_queues(self, name: str, **options: Any) -> Opening[KeyedQueues]:
        """Open the keyed queues of a topic; options as for `kmq_spark.Store.keyed_queues`."""
        return self._opening(KeyedQueues, self._handle.keyed_queues, name, **options)

    def _opening(
        self, twin: Callable[[R], H], call: Callable[..., R], /, *arguments: Any, **options: Any
    ) -> Opening[H]:
        async def opened() -> H:
            return twin(await self._run(call, *arguments, **options))

        return Opening(opened)

    def orderly_consumer(
        self, group: str, topics: Iterable[str] | str, listener: AsyncListener, **options: Any
    ) -> Opening[OrderlyConsumer]:
        """Open and start an orderly consumer, whose `async def` listener runs in this event loop.

        Options as for `kmq_spark.Store.orderly_consumer`.
        """

        async def opened() -> OrderlyConsumer:
            loop = asyncio.get_running_loop()

            def listen(records: list[Record], context: OrderlyContext) -> OrderlyStatus:
                answer = found.answer(listener, records, context)
                return asyncio.run_coroutine_threadsafe(answer, loop).result()

            open_one = self._handle.orderly_consumer
            found = OrderlyConsumer(await self._run(open_one, group, topics, listen, **options))
            try:
                await asyncio.to_thread(found.consumer.start)
            except asyncio.CancelledError:
                # Nothing else would end it, and it would go on to listen.
                await asyncio.shield(found.close())
                raise
            return found

        return Opening(opened)
