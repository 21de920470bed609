"""Producers and transactions for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeAlias

import pyarrow as pa

from kmq_spark.aio.handles import Handle, T, to_its_end
from kmq_spark.aio.keyed import KeyedDelivery, plain_deliveries
from kmq_spark.aio.receiving import Consumer, Delivery
from kmq_spark.client.handles.send_future import expedite
from kmq_spark.client.sending import producer, transaction
from kmq_spark.errors import ClosedError, IllegalStateError
from kmq_storage.groups.administration import Offsets

P = ParamSpec("P")
Received: TypeAlias = Delivery | KeyedDelivery
#: Runs a call with its arguments in a thread.
Run: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


def _acknowledging(
    twin: Callable[Concatenate[producer.Producer, P], Future[T]],
) -> Callable[Concatenate[Producer, P], Coroutine[Any, Any, T]]:
    """A send that is awaited until it is acknowledged, with the arguments of its twin."""

    @wraps(twin)
    async def send(self: Producer, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self._acknowledged(partial(twin, self._handle), *arguments, **options)

    send.__doc__ = f"As {twin.__qualname__} of kmq_spark; returns what its future gives."
    return send


class Producer(Handle[producer.Producer], twin=producer.Producer):
    """`kmq_spark.Producer` for asyncio: an awaited send gives its metadata."""

    def __init__(self, handle: producer.Producer) -> None:
        super().__init__(handle)
        #: How many sends were asked for, and the future of the one that was made last.
        self._asked, self._newest = 0, Future[Any]()
        #: Whether the handle's thread may commit, too: an upload would delay the next send.
        self._helps = not handle._log.is_remote

    send = _acknowledging(producer.Producer.send)
    send_batch = _acknowledging(producer.Producer.send_batch)
    send_arrow = _acknowledging(producer.Producer.send_arrow)
    send_to_queue = _acknowledging(producer.Producer.send_to_queue)
    send_arrow_to_queue = _acknowledging(producer.Producer.send_arrow_to_queue)

    async def _acknowledged(
        self, send: Callable[..., Future[T]], *arguments: Any, **options: Any
    ) -> T:
        if self._handle._in_transaction:
            raise IllegalStateError(
                "a transaction is open, and an awaited send would wait for its commit: send with "
                "it (begin_transaction returns it), or commit it first"
            )
        self._asked += 1
        number = self._asked

        def sent() -> Future[T]:
            self._newest = future = send(*arguments, **options)
            if number == self._asked:  # no other send is on its way: lingering would gather nothing
                expedite(future, helping=self._helps)
            return future

        try:
            future = await self._run(sent)
        except asyncio.CancelledError:  # others may linger, as this one was to ask for the commit
            with suppress(ClosedError):
                self._submit(self._ask_for_commit)
            raise
        return future.result() if future.done() else await asyncio.wrap_future(future)

    def _ask_for_commit(self) -> None:
        expedite(self._newest)

    def transaction(self) -> Transaction:
        """Return a transaction for `async with`; leaving the block commits, an exception aborts."""
        return Transaction(self, self._handle.transaction())

    async def begin_transaction(self) -> Transaction:
        """Begin a transaction to send with; `commit_transaction` or `abort_transaction` ends it."""
        return await self.transaction().__aenter__()

    async def commit_transaction(self) -> None:
        """Commit everything sent since `begin_transaction`; returns when it is durable."""
        await to_its_end(self._submit(self._handle.commit_transaction))

    async def abort_transaction(self) -> None:
        """Store nothing of what was sent since `begin_transaction`."""
        await to_its_end(self._submit(self._handle.abort_transaction))

    async def send_offsets_to_transaction(self, offsets: Offsets, group: str | Consumer) -> None:
        """Commit offsets for a group, or as a consumer of the group, in the open transaction."""
        run = _turn_of(group, self._run)
        await run(self._handle.send_offsets_to_transaction, offsets, _twin_of(group))

    async def flush(self, timeout: float | None = None) -> int:
        """Wait until everything sent so far is durable; return how many records are not."""
        return await asyncio.to_thread(self._handle.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Commit everything pending, and accept nothing more.

        KmqTimeoutError when that takes longer than `timeout` seconds. Committing goes on, and the
        producer may be closed again.
        """
        await asyncio.to_thread(self._handle.close, timeout)
        await super().close()

    def __len__(self) -> int:
        """Return how many records are not durable yet."""
        return len(self._handle)

    def __bool__(self) -> bool:
        """Always true, also when nothing is pending."""
        return True


class Sent(Generic[T]):
    """A send in a transaction: awaited after the commit, it gives the metadata."""

    def __init__(self, future: Future[T], check_awaited: Callable[[], None]) -> None:
        self._future = future
        self._check_awaited = check_awaited

    def __await__(self) -> Generator[Any, None, T]:
        self._check_awaited()
        return asyncio.wrap_future(self._future).__await__()


def _sending(
    twin: Callable[Concatenate[producer.Producer, P], Future[T]],
) -> Callable[Concatenate[Transaction, P], Coroutine[Any, Any, Sent[T]]]:
    """A send in a transaction, with the arguments of the producer's."""

    @wraps(twin)
    async def send(self: Transaction, /, *arguments: P.args, **options: P.kwargs) -> Sent[T]:
        call: Callable[P, Future[T]] = getattr(self._twin, twin.__name__)
        return Sent(await self._run(call, *arguments, **options), self._check_awaited)

    send.__doc__ = f"As {twin.__qualname__} of kmq_spark; await its result after the commit."
    return send


class Transaction:
    """A transaction for asyncio: its sends are awaited, and done, after its commit."""

    def __init__(self, producer: Producer, twin: transaction.Transaction) -> None:
        self._run, self._submit = producer._run, producer._submit
        self._twin = twin
        #: The task that began it, and that is to commit it.
        self._owner: asyncio.Task[Any] | None = None

    send = _sending(producer.Producer.send)
    send_batch = _sending(producer.Producer.send_batch)
    send_arrow = _sending(producer.Producer.send_arrow)
    send_to_queue = _sending(producer.Producer.send_to_queue)
    send_arrow_to_queue = _sending(producer.Producer.send_arrow_to_queue)

    def _check_awaited(self) -> None:
        """IllegalStateError where the wait would never end, as in the twin's thread."""
        if self._twin.is_open and asyncio.current_task() is self._owner:
            raise IllegalStateError(
                "this record is part of an open transaction: await it after the commit"
            )

    async def ack(
        self, deliveries: Received | Iterable[Received] | pa.Table | pa.RecordBatch
    ) -> None:
        """Acknowledge deliveries of queues or keyed queues, or rows of `receive_arrow`."""
        await self._run(self._twin.ack, plain_deliveries(deliveries))

    async def commit_offsets(self, offsets: Consumer | Mapping[str, Offsets]) -> None:
        """Commit the positions of a consumer, or `{group: offsets}`, in the transaction."""
        run = _turn_of(offsets, self._run)
        await run(self._twin.commit_offsets, _twin_of(offsets))

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        begun = self._submit(self._twin.__enter__)
        try:
            await to_its_end(begun)
        except asyncio.CancelledError as error:  # nothing else would end it
            await to_its_end(self._submit(self._undo, begun, error))
            raise
        return self

    def _undo(self, begun: Future[object], error: BaseException) -> None:
        if begun.exception() is None:
            self._twin.__exit__(type(error), error, None)

    async def __aexit__(self, *raised: object) -> None:
        # Waited for also when cancelled: then the producer can begin another one.
        await to_its_end(self._submit(self._twin.__exit__, *raised))


def _turn_of(value: Any, run: Run) -> Run:
    """What runs a call: for a consumer its own thread, since another call of it may be waiting."""
    return value._run if isinstance(value, Consumer) else run


def _twin_of(value: Any) -> Any:
    """Return the consumer behind one of asyncio; everything else as it is."""
    return value._handle if isinstance(value, Consumer) else value
