"""Keyed queues: any number of light queues, which are the keys of one topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.arguments import checked_count
from kmq_spark.client.handles.resource import Resource, Stopped
from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.keyed.batches import (
    IndexSequence,
    asked_names,
    checked_indexes,
    checked_table,
    column_of,
)
from kmq_spark.client.keyed.receiving import KeyedDelivery, checked_deliveries
from kmq_spark.client.keyed.shared import SharedQueues
from kmq_spark.client.keyed.values import message_bytes, queue_name, texts_of
from kmq_spark.client.sending.producer import Producer
from kmq_spark.errors import ClosedError, InvalidRequestError, NotFoundError
from kmq_storage.cached import cached_property
from kmq_storage.format.plain_columns import number_column
from kmq_storage.keyed.reading import QueueReader
from kmq_storage.log.closed import Closed

#: Stands in for everything that a closed handle needs.
_CLOSED: Any = Closed("these keyed queues are closed; take them from the store again")


class KeyedQueues(Resource):
    """The queues of one keyed topic; each has its messages from index 0 on, without gaps.

    The first put to a name makes its queue. Names are text or bytes of 1 to 65,535 bytes; text
    stands for its UTF-8. Any number of threads and processes may use them at once. Closing the
    store closes this, too.
    """

    def __init__(self, shared: SharedQueues) -> None:
        #: The topic.
        self.name = shared.name
        self._shared = shared
        self._reader = shared.reader

    @cached_property
    def _producer(self) -> Producer:
        return self._shared.producer()

    @closes_apart
    def close(self) -> None:
        """Wait until everything that was put is durable, and close this handle.

        A second call does nothing. The store and other handles of the topic stay open.
        """
        shared = self._shared
        try:
            with suppress(ClosedError):
                self.flush()
        finally:
            self._shared = self._reader = self.__dict__["_producer"] = _CLOSED
            with suppress(ClosedError):
                shared.wake()

    def _check_open(self) -> None:
        self._shared.check_open()

    def _is_closed(self) -> bool:
        return self._shared is _CLOSED

    def put(self, queue: str | bytes, message: bytes | str) -> Future[int]:
        """Append a message to a queue; the future gives its index once it is durable.

        The messages that one thread puts to one queue stay in order. A bad name or message is
        InvalidRequestError at once; other errors, those of `Producer.send`, come through the
        future.
        """
        name = queue_name(queue)
        if type(message) is not bytes:
            message = message_bytes(message)
        sent = self._producer.send(self.name, message, name)
        future: Future[int] = _Put((*sent, self._shared, name))  # type: ignore[misc]
        return future

    def put_batch(
        self, queues: Sequence[str | bytes], messages: Sequence[bytes | str]
    ) -> Sequence[int]:
        """Append messages to queues, all or none; returns their indexes when they are durable.

        `queues` and `messages` have equal length. An index is computed when it is looked at. In a
        callback of a put this would wait for itself (IllegalStateError): use `put` there.
        """
        columns = [column_of("queues", queues), column_of("messages", messages)]
        if len(columns[0]) != len(columns[1]):
            raise InvalidRequestError(
                f"messages has {len(columns[1])} elements, queues has {len(columns[0])}"
            )
        return self.put_arrow(pa.table(columns, names=["queue", "value"]))

    def put_arrow(self, batch: pa.RecordBatch | pa.Table) -> Sequence[int]:
        """Append the messages of a RecordBatch or Table with the columns `queue` and `value`.

        Both are binary or string, without nulls. All else is as for `put_batch`.
        """
        self._check_open()  # also when there is nothing to put
        table = checked_table(batch)
        if not table.num_rows:
            return IndexSequence(0, lambda _first, _end: [])
        self._producer._check_waits()  # before anything is sent
        sent: Any = self._producer.send_arrow(self.name, table)
        ((first, _),) = sent.result().offsets.values()
        keys, topic_id = table.column("key"), sent[0].topic_id
        shared = self._shared  # it outlives this handle

        def work_out(low: int, high: int) -> list[int]:
            some, at = keys.slice(low, high - low), _known(first) + low
            return shared.looked_up(lambda reader: _indexes(reader, some, at, topic_id))

        return IndexSequence(len(keys), work_out)

    def delete(self, *queues: str | bytes) -> None:
        """Delete queues with all messages that were put so far; returns when that is durable.

        All are deleted or none, by one small commit. A deleted queue is unknown, and a later put to
        it begins at index 0 again. Deleting an unknown queue changes nothing.
        """
        self._check_open()
        names = [queue_name(queue) for queue in queues]
        if names:
            self._producer._check_waits()
            self._producer.send_batch(self.name, [None] * len(names), names).result()

    def get(self, queue: str | bytes, offset: int, num: int) -> list[bytes]:
        """Return at most `num` messages of a queue from index `offset` on; none of an unknown one.

        Raises:
            OffsetOutOfRangeError: The message of that index went by retention; the error says what
                the queue has.
            DataLossError: A repair cut out messages of the topic that may have been among these. It
                is raised once; call again to go on.
        """
        found: list[bytes] = self._messages(queue, offset, num).to_pylist()
        return found

    def get_arrow(self, queue: str | bytes, offset: int, num: int) -> pa.Table:
        """Return the same as a table with the columns `index` (int64) and `value` (binary)."""
        values = self._messages(queue, offset, num)
        indexes = number_column(np.fromiter(range(offset, offset + len(values)), np.int64))
        return pa.table({"index": indexes, "value": values})

    def get_many(
        self,
        queues: Sequence[str | bytes],
        offsets: int | Sequence[int] | np.ndarray[Any, Any] | None,
        num: int,
    ) -> pa.Table:
        """Return at most `num` messages of each of many queues; much quicker than a `get` for each.

        `offsets`: the first index, for all queues or one for each; None: the first that each has.
        The table has the columns `queue` (binary), `index` (int64) and `value` (binary), in the
        order of `queues`. Errors are those of `get`.
        """
        names = asked_names(queues)
        firsts = checked_indexes(offsets, len(names))
        found = self._reader.many(names, firsts, checked_count("num", num, lowest=0))
        return pa.Table.from_batches([found])

    def _messages(self, queue: str | bytes, offset: int, num: int) -> pa.ChunkedArray:
        first = checked_count("offset", offset, lowest=0)
        most = checked_count("num", num, lowest=0)
        return self._reader.messages(queue_name(queue), first, most, telling=True)

    def size(self, queue: str | bytes) -> int:
        """Return how many messages a queue has now; 0 for an unknown queue.

        KmqWarning when damage to the log may hide more.
        """
        return self._shared.warned(self._reader.size(queue_name(queue)))

    def span(self, queue: str | bytes) -> tuple[int, int]:
        """Return the index of a queue's first message, and the index that the next put will have.

        Both are 0 for an unknown queue, and equal when all messages went by retention. KmqWarning
        when damage to the log may hide more.
        """
        return self._shared.warned(self._reader.span(queue_name(queue)))

    def names(self) -> list[str | bytes]:
        """Return the names of all queues that have messages, in the order of their bytes.

        A name is text where it is UTF-8, else bytes. KmqWarning when damage to the log may hide
        more.
        """
        found = self._shared.warned(self._reader.names())
        return list(chain.from_iterable(map(texts_of, found.chunks)))

    def receive(
        self,
        queue: str | bytes,
        max_records: int = 1,
        timeout: float | None = 0.0,
        *,
        group: str = "default",
        lock_timeout: float | timedelta = 30.0,
    ) -> list[KeyedDelivery]:
        """Receive the oldest messages of a queue that its group neither acknowledged nor holds.

        Args:
            queue: The queue.
            max_records: The most messages; fewer are returned as soon as there are some.
            timeout: Seconds to wait for the first; then the list is empty. None waits for ever.
            group: Each group gets every message. Its name has no `%` here.
            lock_timeout: Seconds that a message is held. Without an answer it then comes again.

        A group has at most 1,000 messages of a queue under way at a time.
        """
        return self._receive(queue, max_records, timeout, group=group, lock_timeout=lock_timeout)

    def _receive(
        self,
        queue: str | bytes,
        most: int,
        timeout: float | None,
        *,
        group: str,
        lock_timeout: float | timedelta,
        stopped: Stopped = lambda: False,
    ) -> list[KeyedDelivery]:
        """The same; a wait that was stopped ends with no messages."""
        receiver, name = self._shared.receiver(group), queue_name(queue)

        def ends() -> bool:
            return self._is_closed() or stopped()

        found = receiver.receive(name, most, timeout, lock_timeout, stopped=ends)
        if not found:
            self._check_open()
        return found

    def _wake(self) -> None:
        """Wake a waiting receive, to check whether it was stopped."""
        self._shared.wake()

    def ack(self, deliveries: KeyedDelivery | Iterable[KeyedDelivery]) -> None:
        """Acknowledge one delivery or several, of any queues of one group, in one commit.

        LeaseExpiredError when one of them comes too late, InvalidRequestError for one of another
        topic; then none is acknowledged.
        """
        self._check_open()
        some = checked_deliveries(self.name, deliveries)
        groups = {each.group for each in some}
        if len(groups) > 1:
            told = ", ".join(sorted(groups))
            raise InvalidRequestError(
                f"deliveries of several groups ({told}): acknowledge each group's alone"
            )
        for group in groups:
            self._shared.receiver(group).ack(some)

    def lag(self, queue: str | bytes, *, group: str = "default") -> int:
        """Return how many messages of a queue a group has not acknowledged."""
        return self._shared.warned(self._shared.receiver(group).lag(queue_name(queue)))

    def flush(self) -> None:
        """Wait until everything that was put is durable.

        IllegalStateError in a callback of a put, which can't wait for the others.
        """
        self._check_open()
        if self._shared.made is not None:
            self._shared.made._check_waits()
            self._shared.made.flush()

    def __repr__(self) -> str:
        return f"KeyedQueues({self.name!r})"


class _Put(SendFuture[int]):
    """The future of a put: the future of its send, whose place it turns into an index."""

    __slots__ = ()

    _shared: SharedQueues = property(itemgetter(2))  # type: ignore[assignment]
    _queue: bytes = property(itemgetter(3))  # type: ignore[assignment]

    def result(self, timeout: float | None = None) -> int:
        """Return the index of the message; raises the put's error, or KmqTimeoutError."""
        place: Any = super().result(timeout)
        offset, sends = _known(place.offset), self._outcome
        topic_id: bytes = sends.topic_id  # type: ignore[attr-defined]
        return self._shared.looked_up(lambda reader: reader.index_of(self._queue, offset, topic_id))


def _indexes(reader: QueueReader, keys: pa.ChunkedArray, first: int, topic_id: bytes) -> list[int]:
    """Return the indexes of messages for these queues, whose offsets begin at `first`."""
    found: list[int] = []
    for some in keys.chunks:
        found += reader.indexes_of(some, first + len(found), topic_id).tolist()
    return found


def _known(offset: int) -> int:
    if offset < 0:
        raise NotFoundError(
            "the messages are stored, but their commit was collected before their indexes were "
            "looked up: these can't be told any more"
        )
    return offset
