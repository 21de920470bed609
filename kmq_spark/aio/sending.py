"""The asyncio twins of producers and their transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Generic, Self

import pyarrow as pa

from kmq_spark.aio.handles import Handle, T, to_its_end
from kmq_spark.aio.receiving import Consumer, Delivery
from kmq_spark.client import producer, transaction
from kmq_spark.client.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.send_future import expedite
from kmq_spark.errors import IllegalStateError
from kmq_storage.groups import Offsets


class Producer(Handle[producer.Producer]):
    """The twin of `kmq_spark.Producer`: an awaited send gives the metadata."""

    def __init__(self, handle: producer.Producer) -> None:
        super().__init__(handle)
        #: How many sends were asked for.
        self._asked = 0
        #: Whether the handle's thread commits, too: an upload would keep the next send waiting.
        self._helps = not handle._log.is_remote

    async def send(self, *arguments: Any, **options: Any) -> RecordMetadata:
        """Send a record; return its place when it is acknowledged."""
        return await self._acknowledged(self._handle.send, *arguments, **options)

    async def send_batch(self, *arguments: Any, **options: Any) -> list[RecordMetadata]:
        """Send records as one unit; return their places when they are acknowledged."""
        return await self._acknowledged(self._handle.send_batch, *arguments, **options)

    async def send_arrow(self, *arguments: Any, **options: Any) -> BatchMetadata:
        """Send Arrow data as one unit; return where it is when it is acknowledged."""
        return await self._acknowledged(self._handle.send_arrow, *arguments, **options)

    async def send_arrow_to_queue(self, *arguments: Any, **options: Any) -> BatchMetadata:
        """Arrow data to one queue, whole or not at all, and where its rows are."""
        return await self._acknowledged(self._handle.send_arrow_to_queue, *arguments, **options)

    async def send_to_queue(self, *arguments: Any, **options: Any) -> RecordMetadata:
        """Send a record to one queue; return its place when it is acknowledged."""
        return await self._acknowledged(self._handle.send_to_queue, *arguments, **options)

    async def _acknowledged(
        self, send: Callable[..., Future[T]], *arguments: Any, **options: Any
    ) -> T:
        if self._handle._in_transaction:
            raise IllegalStateError(
                "a transaction is open: send with it, or this would wait for a commit to come"
            )
        self._asked += 1
        number = self._asked

        def sent() -> Future[T]:
            future = send(*arguments, **options)
            if number == self._asked:  # nobody is about to send more: lingering gathers nothing
                expedite(future, helping=self._helps)
            return future

        future = await self._run(sent)
        return future.result() if future.done() else await asyncio.wrap_future(future)

    def transaction(self) -> Transaction:
        """A transaction, to be entered by `async with`; leaving the block commits or aborts."""
        return Transaction(self, self._handle.transaction())

    async def begin_transaction(self) -> Transaction:
        """Begin a transaction that `commit_transaction` or `abort_transaction` ends."""
        return await self.transaction().__aenter__()

    async def commit_transaction(self) -> None:
        """Commit all that was sent since the beginning; returns when it is durable."""
        await self._run(self._handle.commit_transaction)

    async def abort_transaction(self) -> None:
        """Store nothing of what was sent since the beginning."""
        await self._run(self._handle.abort_transaction)

    async def send_offsets_to_transaction(self, offsets: Offsets, group: str | Consumer) -> None:
        """Commit offsets for a group, or as a consumer that is a member, with the transaction."""
        await self._run(self._handle.send_offsets_to_transaction, offsets, twin_of(group))

    async def flush(self, timeout: float | None = None) -> int:
        """Wait until everything sent is durable; the number of records that still are not."""
        return await asyncio.to_thread(self._handle.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Accept nothing more; returns when all is committed, within `timeout` seconds.

        KmqTimeoutError when that takes longer: committing goes on, and it may be closed again.
        """
        await asyncio.to_thread(self._handle.close, timeout)
        await super().close()

    def __len__(self) -> int:
        """How many records are not durable yet."""
        return len(self._handle)

    def __bool__(self) -> bool:
        """A producer is one though nothing waits."""
        return True


class Sent(Generic[T]):
    """A send of a transaction: awaited after the commit, it gives the metadata."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()


class Transaction:
    """The twin of a producer's transaction: awaited sends are in it, and done after its commit."""

    def __init__(self, producer: Producer, twin: transaction.Transaction) -> None:
        self._run, self._submit = producer._run, producer._submit
        self._twin = twin

    async def send(self, *arguments: Any, **options: Any) -> Sent[RecordMetadata]:
        """Send a record with the commit; what this gives is awaited after that."""
        return Sent(await self._run(self._twin.send, *arguments, **options))

    async def send_batch(self, *arguments: Any, **options: Any) -> Sent[list[RecordMetadata]]:
        """Send records with the commit."""
        return Sent(await self._run(self._twin.send_batch, *arguments, **options))

    async def send_arrow(self, *arguments: Any, **options: Any) -> Sent[BatchMetadata]:
        """Send Arrow data with the commit."""
        return Sent(await self._run(self._twin.send_arrow, *arguments, **options))

    async def send_to_queue(self, *arguments: Any, **options: Any) -> Sent[RecordMetadata]:
        """Send to a queue with the commit."""
        return Sent(await self._run(self._twin.send_to_queue, *arguments, **options))

    async def ack(
        self, deliveries: Delivery | Iterable[Delivery] | pa.Table | pa.RecordBatch
    ) -> None:
        """Acknowledge what was received from queues with the commit; rows of a table, too."""
        await self._run(self._twin.ack, deliveries)

    async def commit_offsets(self, offsets: Consumer | Mapping[str, Offsets]) -> None:
        """Commit what a consumer has handed out, or `{group: offsets}`."""
        await self._run(self._twin.commit_offsets, twin_of(offsets))

    async def __aenter__(self) -> Self:
        begun = self._submit(self._twin.__enter__)
        try:
            await to_its_end(begun)
        except asyncio.CancelledError as error:  # nobody else would end it
            await to_its_end(self._submit(self._undo, begun, error))
            raise
        return self

    def _undo(self, begun: Future[object], error: BaseException) -> None:
        if begun.exception() is None:
            self._twin.__exit__(type(error), error, None)

    async def __aexit__(self, *raised: object) -> None:
        # Cancelled, it is waited for: then its producer can begin another one.
        await to_its_end(self._submit(self._twin.__exit__, *raised))


def twin_of(value: Any) -> Any:
    """A consumer of asyncio as the one that it stands for; all else as it is."""
    return value._handle if isinstance(value, Consumer) else value
