"""The store for asyncio, and how to open it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec

import pyarrow as pa

from kmq_spark.aio.handles import H, Handle, Opening, R, Receiver, T
from kmq_spark.aio.keyed import KeyedQueues
from kmq_spark.aio.receiving import AsyncListener, Consumer, OrderlyConsumer, Queue
from kmq_spark.aio.sending import Producer
from kmq_spark.client import store
from kmq_spark.client.handles.living import Living
from kmq_spark.client.opening import open_store
from kmq_spark.client.orderly.rules import OrderlyContext, OrderlyStatus
from kmq_spark.client.records.record import Record
from kmq_spark.errors import InvalidRequestError
from kmq_storage.model import Commit

P = ParamSpec("P")


def open(url: str | os.PathLike[str], **options: Any) -> Opening[Store]:  # noqa: A001 - its name
    """Open a store: `await` it, or use `async with`. Options as for `kmq_spark.open`."""

    async def opened() -> Store:
        return Store(await asyncio.to_thread(partial(open_store, url, **options)))

    return Opening(opened)


def _opening(
    kind: Callable[[R], H], twin: Callable[Concatenate[store.Store, P], R]
) -> Callable[Concatenate[Store, P], Opening[H]]:
    """A call that opens a handle, with the arguments of its twin."""

    @wraps(twin)
    def opening(self: Store, /, *arguments: P.args, **options: P.kwargs) -> Opening[H]:
        async def opened() -> H:
            handle = kind(await self._run(partial(twin, self._handle), *arguments, **options))
            if isinstance(handle, Receiver):
                self._receivers.add(handle)
            return handle

        return Opening(opened)

    return opening


class Store(Handle[store.Store], twin=store.Store):
    """`kmq_spark.Store` for asyncio: each of its methods is here too, to be awaited."""

    def __init__(self, handle: store.Store) -> None:
        super().__init__(handle)
        self._receivers = Living[Receiver[Any]]()

    async def __aexit__(self, *raised: object) -> None:
        try:
            for each in self._receivers.all():
                await each._gave_back()
        finally:
            await super().__aexit__(*raised)

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

    producer = _opening(Producer, store.Store.producer)
    consumer = _opening(Consumer, store.Store.consumer)
    queue = _opening(Queue, store.Store.queue)
    keyed_queues = _opening(KeyedQueues, store.Store.keyed_queues)

    def orderly_consumer(
        self, group: str, topics: Iterable[str] | str, listener: AsyncListener, **options: Any
    ) -> Opening[OrderlyConsumer]:
        """Open and start an orderly consumer, whose `async def` listener runs in this event loop.

        Options as for `kmq_spark.Store.orderly_consumer`.
        """

        async def opened() -> OrderlyConsumer:
            loop = asyncio.get_running_loop()
            if not callable(listener):
                raise InvalidRequestError(f"listener must be callable, not {listener!r}")

            def listen(records: list[Record], context: OrderlyContext) -> OrderlyStatus:
                answer = found.answer(listener, records, context)
                return asyncio.run_coroutine_threadsafe(answer, loop).result()

            open_one = self._handle.orderly_consumer
            found = OrderlyConsumer(await self._run(open_one, group, topics, listen, **options))
            try:
                await asyncio.to_thread(found._handle.start)
            except asyncio.CancelledError:
                # Nothing else would end it, and it would go on to listen.
                await asyncio.shield(found.close())
                raise
            return found

        return Opening(opened)
