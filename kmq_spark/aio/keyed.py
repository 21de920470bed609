"""The asyncio twin of keyed queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import pyarrow as pa

from kmq_spark.aio.handles import Handle
from kmq_spark.client import keyed_queues


class KeyedQueues(Handle):
    """The twin of `kmq_spark.KeyedQueues`: every other method of it is here too, to be awaited."""

    def __init__(self, handle: keyed_queues.KeyedQueues) -> None:
        super().__init__(nullcontext())
        self._queues = handle
        #: The topic.
        self.name = handle.name

    def __getattr__(self, name: str) -> Any:
        return partial(self._run, getattr(self._queues, name))

    async def put(self, queue: str | bytes, message: bytes | str) -> int:
        """Append a message to a queue; its index, when it is durable."""
        put = await self._run(self._queues.put, queue, message)
        await _done(put)
        return await self._run(put.result)  # the index may have to be read

    async def put_batch(
        self, queues: Sequence[str | bytes], messages: Sequence[bytes | str]
    ) -> list[int]:
        """Append messages to queues, all or none; their indexes, when they are durable."""
        return await self._run(_put_all, self._queues.put_batch, queues, messages)

    async def put_arrow(self, batch: pa.RecordBatch | pa.Table) -> list[int]:
        """The same with a RecordBatch or Table that has the columns `queue` and `value`."""
        return await self._run(_put_all, self._queues.put_arrow, batch)


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
