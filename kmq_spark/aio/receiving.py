"""Consumers and queues for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, Self, TypeAlias

import pyarrow as pa

from kmq_spark.aio.callbacks import AsyncCallback, Callbacks
from kmq_spark.aio.handles import Call, GivingWay, Handle, Receiver, T
from kmq_spark.client.consuming import consumer
from kmq_spark.client.consuming.hand import Taken
from kmq_spark.client.consuming.taking import in_table
from kmq_spark.client.orderly import consumer as orderly
from kmq_spark.client.orderly.process_queue import QueueState
from kmq_spark.client.orderly.rules import OrderlyContext, OrderlyStatus
from kmq_spark.client.queues import delivery as queue_delivery
from kmq_spark.client.queues import queue
from kmq_spark.client.queues.reasons import Reason
from kmq_spark.client.records.record import Record
from kmq_spark.errors import ClosedError, IllegalStateError

AsyncListener: TypeAlias = Callable[
    [list[Record], OrderlyContext], Awaitable[OrderlyStatus] | OrderlyStatus
]
#: The consumer whose listener a task is, or was begun by.
_hearing: ContextVar[Handle[Any] | None] = ContextVar("kmq_hearing", default=None)


class Consumer(Handle[consumer.Consumer], twin=consumer.Consumer):
    """`kmq_spark.Consumer` for asyncio: each of its methods is here too, to be awaited."""

    def __init__(self, handle: consumer.Consumer) -> None:
        super().__init__(handle)
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callbacks = Callbacks()
        self._giving_way = GivingWay(handle._wake)

    @property
    def _turn(self) -> asyncio.Lock:
        """One call after another, each until its result is handed out; in any loop's life."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a lock belongs to the loop that first waited for it
            if self._loop is not None and self._loop.is_running():
                raise IllegalStateError(
                    "another event loop uses this consumer: open a consumer for each loop"
                )
            self._lock, self._loop = asyncio.Lock(), loop
        return self._lock

    async def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if self._callbacks.asks:
            return await self._callbacks.run(call, *arguments, **options)
        turn = self._turn
        with self._giving_way.call():
            async with turn:
                return await super()._run(call, *arguments, **options)

    async def subscribe(
        self,
        topics: Iterable[str] | str | None = None,
        *,
        pattern: str | None = None,
        on_assign: AsyncCallback | None = None,
        on_revoke: AsyncCallback | None = None,
        on_lost: AsyncCallback | None = None,
    ) -> None:
        """Subscribe as `kmq_spark.Consumer.subscribe` does.

        The callbacks, `async def` or plain functions, run in the event loop.
        """
        own = self._callbacks.listener
        told = {"on_assign": own(on_assign), "on_revoke": own(on_revoke), "on_lost": own(on_lost)}
        await self._run(self._handle.subscribe, topics, pattern=pattern, **told)

    async def __aexit__(self, *raised: object) -> None:
        # In our thread, behind a cancelled call that still runs; a waiting call is ended first.
        if self._callbacks.asks:
            await self._callbacks.run(self._handle.__exit__, *raised)
            return
        self._handle._stop()
        with suppress(ClosedError):
            leaving = self._submit(self._handle.__exit__, *raised)
            self._thread.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(leaving))

    async def poll(self, timeout: float | None = 0.0) -> Record | None:
        """Return the next record, or None when none comes within `timeout` seconds."""
        records = await self._wait(timeout, partial(self._handle._take_records, 1))
        return records[0] if records else None

    async def consume(self, max_records: int = 500, timeout: float | None = 1.0) -> list[Record]:
        """Return at most `max_records` records; waits up to `timeout` seconds for the first."""
        return await self._wait(timeout, partial(self._handle._take_records, max_records))

    async def consume_arrow(
        self, max_rows: int = 65_536, timeout: float | None = 1.0
    ) -> pa.Table | None:
        """Return at most `max_rows` records as a table; None when none come in time."""
        return await self._wait(
            timeout, lambda **until: in_table(self._handle._take_slices(max_rows, **until))
        )

    def __aiter__(self) -> Self:
        """Records as they come, until the consumer is closed.

        IllegalStateError for a consumer without topics, which would wait for ever. A cancelled
        wait, as by `asyncio.wait_for(anext(records), 1.0)`, ends nothing: the next one goes on.
        """
        return self

    async def __anext__(self) -> Record:
        while True:
            try:
                record = await self.poll(timeout=None)
            except ClosedError:
                raise StopAsyncIteration from None
            if record is not None:
                return record

    async def _wait(self, timeout: float | None, take: Callable[..., Taken[T]]) -> T:
        self._callbacks.check_not_asked()
        if timeout is None and not self._handle._closed:
            self._handle._assignment.check_wanted()
        turn = self._turn

        async def taken(call: Call) -> T:
            # No other call takes records before these are handed out, or the call is cancelled.
            async with turn:
                with self._giving_way.wait(call, take) as found:
                    return (await Handle._run(self, found)).hand_out()

        return await self._giving_way.until_found(taken, timeout)


class OrderlyConsumer(Handle[orderly.OrderlyConsumer], twin=orderly.OrderlyConsumer):
    """`kmq_spark.OrderlyConsumer` for asyncio; its listener runs in the event loop."""

    async def answer(
        self, listener: AsyncListener, records: list[Record], context: OrderlyContext
    ) -> OrderlyStatus:
        """Return the listener's answer, from a task of its own."""
        _hearing.set(self)
        given = listener(records, context)
        return await given if isawaitable(given) else given

    async def __aexit__(self, *raised: object) -> None:
        if _hearing.get() is self:  # as the twin does: it waits for this answer
            self._handle._stop()
        else:
            await super().__aexit__(*raised)

    async def join(self, timeout: float | None = None) -> None:
        """Wait until it is closed; raises the error that ended it before."""
        await asyncio.to_thread(self._handle.join, timeout)

    def process_queues(self) -> dict[str, dict[int, QueueState]]:
        """Return the state of each process queue: `{topic: {partition: QueueState}}`."""
        return self._handle.process_queues()


class Delivery(queue_delivery.Delivery):
    """`kmq_spark.Delivery` for asyncio: its answers are awaited."""

    __slots__ = ()

    async def ack(self) -> None:  # type: ignore[override]
        """Acknowledge the record: it is finished, and nobody gets it again."""
        await self.hold.queue._awaited._run(super().ack)

    async def nack(  # type: ignore[override]
        self, delay: float | timedelta | None = None, reason: Reason = None
    ) -> None:
        """Have the record handed out again, after `delay` seconds or by the queue's `backoff`."""
        await self.hold.queue._awaited._run(super().nack, delay, reason)

    async def reject(self, reason: Reason = None) -> None:  # type: ignore[override]
        """Make the record a dead letter at once, with this reason."""
        await self.hold.queue._awaited._run(super().reject, reason)

    async def extend(self, seconds: float | timedelta) -> None:  # type: ignore[override]
        """Hold the record until `seconds` from now."""
        await self.hold.queue._awaited._run(super().extend, seconds)


class Queue(Receiver[queue.Queue], twin=queue.Queue):
    """`kmq_spark.Queue` for asyncio: each of its methods is here too, to be awaited."""

    def __init__(self, handle: queue.Queue) -> None:
        super().__init__(handle, GivingWay(handle._wake))
        handle._kind, handle._awaited = Delivery, self
        #: Its name.
        self.name = handle.name

    async def receive(self, max_records: int = 1, timeout: float | None = 0.0) -> list[Delivery]:
        """Receive records that nobody else gets until they are answered, or their lock ends."""
        receive: Callable[..., list[Any]] = partial(self._handle._receive, max_records)
        return await self._received(receive, self._handle._give_back, timeout)

    async def receive_arrow(self, max_rows: int = 65_536, timeout: float | None = 0.0) -> pa.Table:
        """Receive the same as a table, with a column `_delivery` for `ack`."""
        receive = partial(self._handle._receive_arrow, max_rows)
        return await self._received(receive, self._handle._give_back, timeout)
