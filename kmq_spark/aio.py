"""The asyncio twins of store, producer, consumer and queue: the same names, to be awaited.

Each handle has one thread of its own, so that its calls keep their order and the event loop
never waits for a disk. A wait that is cancelled loses nothing: what it took was not handed out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from kmq_spark.client import consumer, producer, queue, queue_delivery, store
from kmq_spark.client.arguments import checked_timeout
from kmq_spark.client.hand import Taken
from kmq_spark.client.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.opening import open_store
from kmq_spark.client.orderly import consumer as orderly
from kmq_spark.client.orderly.process_queue import QueueState
from kmq_spark.client.orderly.rules import OrderlyContext, OrderlyStatus
from kmq_spark.client.record import Record
from kmq_spark.errors import ClosedError
from kmq_storage.model import Commit

T = TypeVar("T")
H = TypeVar("H", bound="_Handle")

AsyncListener = Callable[[list[Record], OrderlyContext], Coroutine[Any, Any, OrderlyStatus]]

#: A thread that waits looks this often whether its task was cancelled (seconds).
_SLICE = 0.2


class _Handle:
    """A handle whose calls run one after another in a thread of its own."""

    def __init__(self, handle: AbstractContextManager[Any]) -> None:
        self._handle = handle
        self._thread = ThreadPoolExecutor(1, "kmq-aio")

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return await asyncio.wrap_future(self._submit(call, *arguments, **options))

    def _submit(self, call: Callable[..., T], *arguments: Any, **options: Any) -> Future[T]:
        try:
            return self._thread.submit(call, *arguments, **options)
        except RuntimeError:
            raise ClosedError("the handle is closed") from None

    async def close(self) -> None:
        """Close it, as the twin does; again is no error."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # From another thread: a call that waits in ours is ended by it.
        await asyncio.to_thread(self._handle.__exit__, kind, error, trace)
        self._thread.shutdown(wait=False)


class Opening(Generic[H]):
    """A handle on its way: await it, or enter it with `async with`."""

    def __init__(self, opened: Callable[[], Awaitable[H]]) -> None:
        self._open = opened
        self._opened: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._open().__await__()

    async def __aenter__(self) -> H:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)


def open(url: str | os.PathLike[str], **options: Any) -> Opening[Store]:  # noqa: A001 - its name
    """The twin of `kmq_spark.open`."""

    async def opened() -> Store:
        return Store(await asyncio.to_thread(partial(open_store, url, **options)))

    return Opening(opened)


class Store(_Handle):
    """The twin of `kmq_spark.Store`: every other method of it is here too, to be awaited."""

    def __init__(self, handle: store.Store) -> None:
        super().__init__(handle)
        self._store = handle

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._run, found) if callable(found) else found

    def read(self, topic: str, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        """The record batches of `kmq_spark.Store.read`, for `async for`."""
        return self._each(partial(self._store.read, topic, **options))

    def commits(self, start: int | None = None) -> AsyncIterator[Commit]:
        """The commits of `kmq_spark.Store.commits`, for `async for`."""
        return self._each(partial(self._store.commits, start))

    async def _each(self, found: Callable[[], Iterable[T]]) -> AsyncIterator[T]:
        """What an iterator yields, each step of it in the handle's thread."""
        steps = await self._run(lambda: iter(found()))
        while (step := await self._run(next, steps, None)) is not None:
            yield step

    def producer(self, **options: Any) -> Opening[Producer]:
        """The twin of `kmq_spark.Store.producer`."""

        async def opened() -> Producer:
            return Producer(await self._run(self._store.producer, **options))

        return Opening(opened)

    def consumer(self, group: str | None = None, **options: Any) -> Opening[Consumer]:
        """The twin of `kmq_spark.Store.consumer`."""

        async def opened() -> Consumer:
            return Consumer(await self._run(self._store.consumer, group, **options))

        return Opening(opened)

    def queue(self, name: str) -> Opening[Queue]:
        """The twin of `kmq_spark.Store.queue`."""

        async def opened() -> Queue:
            return Queue(await self._run(self._store.queue, name))

        return Opening(opened)

    def orderly_consumer(
        self, group: str, topics: Iterable[str] | str, listener: AsyncListener, **options: Any
    ) -> Opening[OrderlyConsumer]:
        """The twin of `kmq_spark.Store.orderly_consumer`, started; its listener is awaited."""

        async def opened() -> OrderlyConsumer:
            loop = asyncio.get_running_loop()

            def listen(records: list[Record], context: OrderlyContext) -> OrderlyStatus:
                answer = listener(records, context)
                return asyncio.run_coroutine_threadsafe(answer, loop).result()

            open_one = self._store.orderly_consumer
            found = OrderlyConsumer(await self._run(open_one, group, topics, listen, **options))
            await asyncio.to_thread(found.consumer.start)
            return found

        return Opening(opened)


class OrderlyConsumer(_Handle):
    """The twin of `kmq_spark.OrderlyConsumer`; its listener runs in the event loop."""

    def __init__(self, handle: orderly.OrderlyConsumer) -> None:
        super().__init__(handle)
        self.consumer = handle

    async def join(self, timeout: float | None = None) -> None:
        """Return when it is closed; raises what ended it before."""
        await asyncio.to_thread(self.consumer.join, timeout)

    def process_queues(self) -> dict[str, dict[int, QueueState]]:
        """What of each partition waits, is taken and is done with, by topic and number."""
        return self.consumer.process_queues()


class Producer(_Handle):
    """The twin of `kmq_spark.Producer`: an awaited send gives the metadata."""

    def __init__(self, handle: producer.Producer) -> None:
        super().__init__(handle)
        self._producer = handle

    async def send(self, *arguments: Any, **options: Any) -> RecordMetadata:
        """Send a record; return its place when it is acknowledged."""
        return await self._acknowledged(self._producer.send, *arguments, **options)

    async def send_batch(self, *arguments: Any, **options: Any) -> list[RecordMetadata]:
        """Send records as one unit; return their places when they are acknowledged."""
        return await self._acknowledged(self._producer.send_batch, *arguments, **options)

    async def send_arrow(self, *arguments: Any, **options: Any) -> BatchMetadata:
        """Send Arrow data as one unit; return where it is when it is acknowledged."""
        return await self._acknowledged(self._producer.send_arrow, *arguments, **options)

    async def send_arrow_to_queue(self, *arguments: Any, **options: Any) -> BatchMetadata:
        """Arrow data to one queue, whole or not at all, and where its rows are."""
        return await self._acknowledged(self._producer.send_arrow_to_queue, *arguments, **options)

    async def send_to_queue(self, *arguments: Any, **options: Any) -> RecordMetadata:
        """Send a record to one queue; return its place when it is acknowledged."""
        return await self._acknowledged(self._producer.send_to_queue, *arguments, **options)

    async def _acknowledged(
        self, send: Callable[..., Future[T]], *arguments: Any, **options: Any
    ) -> T:
        return await asyncio.wrap_future(await self._run(send, *arguments, **options))

    async def flush(self, timeout: float | None = None) -> int:
        """Wait until everything sent is durable; the number of records that still are not."""
        return await asyncio.to_thread(self._producer.flush, timeout)

    def __len__(self) -> int:
        """How many records are not durable yet."""
        return len(self._producer)


class Delivery(queue_delivery.Delivery):
    """The twin of `kmq_spark.Delivery`: its answers are to be awaited."""

    __slots__ = ()

    async def ack(self) -> None:  # type: ignore[override]
        """It is done; nobody gets it again."""
        await self[-1]._run(super().ack)

    async def nack(self, delay: float | timedelta | None = None) -> None:  # type: ignore[override]
        """It failed, and comes again."""
        await self[-1]._run(super().nack, delay)

    async def reject(self, reason: str | None = None) -> None:  # type: ignore[override]
        """It fails for ever: it becomes a dead letter at once."""
        await self[-1]._run(super().reject, reason)

    async def extend(self, seconds: float | timedelta) -> None:  # type: ignore[override]
        """It takes longer: it is held until so many seconds from now."""
        await self[-1]._run(super().extend, seconds)


class Queue(_Handle):
    """The twin of `kmq_spark.Queue`: every other method of it is here too, to be awaited."""

    def __init__(self, handle: queue.Queue) -> None:
        super().__init__(handle)
        self._queue = handle

    def __getattr__(self, name: str) -> Any:
        return partial(self._run, getattr(self._queue, name))

    async def receive(self, max_records: int = 1, timeout: float | None = 0.0) -> list[Delivery]:
        """Records that nobody else gets until they are answered, or their lock ends."""
        found = await self._wait(timeout, partial(self._queue.receive, max_records))
        return [Delivery((*each, self)) for each in found or ()]

    async def receive_arrow(
        self, max_rows: int = 65_536, timeout: float | None = 0.0
    ) -> pa.Table | None:
        """The same as a table, with a column `_delivery` for `ack`; None when nothing came."""
        return await self._wait(timeout, partial(self._queue.receive_arrow, max_rows))

    async def _wait(self, timeout: float | None, receive: Callable[..., T]) -> T | None:
        """Receive in slices of the time, so that a cancelled wait soon frees the thread."""
        limit = checked_timeout(timeout)
        now = asyncio.get_running_loop().time
        deadline = None if limit is None else now() + limit
        while True:
            left = _SLICE if deadline is None else min(_SLICE, max(0.0, deadline - now()))
            found = await self._received(partial(receive, timeout=left))
            if found or (deadline is not None and now() >= deadline):
                return found

    async def _received(self, receive: Callable[[], T]) -> T:
        """What was received; given back when the task is cancelled meanwhile."""
        future = self._submit(receive)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._queue._give_back(done.result()))
            raise


class Consumer(_Handle):
    """The twin of `kmq_spark.Consumer`: every other method of it is here too, to be awaited."""

    def __init__(self, handle: consumer.Consumer) -> None:
        super().__init__(handle)
        self._consumer = handle
        #: One call after another, each until its result is handed out.
        self._turn = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return partial(self._run, getattr(self._consumer, name))

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        async with self._turn:
            return await super()._run(call, *arguments, **options)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # In our thread, behind what a cancelled call is at; what waits there is ended before.
        self._consumer._stop()
        with suppress(ClosedError):
            leaving = self._submit(self._consumer.__exit__, kind, error, trace)
            self._thread.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(leaving))

    async def poll(self, timeout: float | None = 0.0) -> Record | None:
        """The next record, or None when there is none within `timeout` seconds."""
        records = await self._wait(timeout, partial(self._consumer._take_records, 1))
        return records[0] if records else None

    async def consume(self, max_records: int = 500, timeout: float | None = 1.0) -> list[Record]:
        """What is there, at most `max_records`; waits up to `timeout` seconds for the first."""
        return await self._wait(timeout, partial(self._consumer._take_records, max_records))

    async def consume_arrow(
        self, max_rows: int = 65_536, timeout: float | None = 1.0
    ) -> pa.Table | None:
        """The same as one table, or None when nothing came."""
        return await self._wait(timeout, partial(self._consumer._take_table, max_rows))

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records as they come, until the consumer is closed."""
        while True:
            try:
                record = await self.poll(timeout=None)
            except ClosedError:
                return
            if record is not None:
                yield record

    async def _wait(self, timeout: float | None, take: Callable[..., Taken[T]]) -> T:
        """Take in slices of the time, so that a cancelled wait soon frees the thread."""
        limit = checked_timeout(timeout)
        now = asyncio.get_running_loop().time
        deadline = None if limit is None else now() + limit
        while True:
            left = _SLICE if deadline is None else min(_SLICE, max(0.0, deadline - now()))
            async with self._turn:  # nobody else takes before this was handed out, or cancelled
                found = (await super()._run(take, timeout=left)).hand_out()
            nothing = found is None or (isinstance(found, list) and not found)
            if not nothing or (deadline is not None and now() >= deadline):
                return found
