"""Keyed queues: any number of light queues, which are the keys of one topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from datetime import timedelta
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from kmq_spark.client.arguments import checked_count
from kmq_spark.client.keyed_batches import (
    IndexSequence,
    asked_names,
    checked_indexes,
    checked_table,
    column_of,
)
from kmq_spark.client.keyed_receiving import (
    GroupReceiver,
    KeyedDelivery,
    checked_deliveries,
)
from kmq_spark.client.keyed_values import message_bytes, queue_name, texts_of
from kmq_spark.client.producer import Producer
from kmq_spark.client.resource import Resource, Stopped
from kmq_spark.client.send_future import SendFuture
from kmq_spark.errors import (
    ClosedError,
    CorruptionError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from kmq_storage.format.plain_columns import number_column
from kmq_storage.keyed.reading import QueueReader
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.doubtful_ends import warn_of_doubtful_ends
from kmq_storage.objects.fork import reopen_in_child

_Index = TypeVar("_Index")


class SharedQueues:
    """What all handles of one keyed topic in a store have in common."""

    def __init__(
        self,
        log: CommitLog,
        name: str,
        producer: Callable[[], Producer],
        again: Callable[[], CommitLog] | None,
    ) -> None:
        """`again` opens the log once more, to read, when the store was closed."""
        self.name = name
        self._again = again
        self.reader = QueueReader(log, name)
        #: None until the first put.
        self.made: Producer | None = None
        self._log = log
        self._new_producer = producer
        self._receivers: dict[str, GroupReceiver] = {}
        self._making = threading.Lock()
        reopen_in_child(self)

    def after_fork_in_child(self) -> None:
        """Another thread of the parent may have been at it."""
        self._making = threading.Lock()

    def check_open(self) -> None:
        """ClosedError once the store was closed."""
        self._log.check_open()

    def warned(self, found: _Index) -> _Index:
        """What was found; KmqWarning, to who asked the caller, where damage may hide more."""
        state = self._log.state
        warn_of_doubtful_ends(state, filter(None, [state.find_topic(self.name)]), depth=2)
        return found

    def producer(self) -> Producer:
        """Made by the first put: who only reads needs none."""
        with self._making:
            if self.made is None:
                self.made = self._new_producer()
            return self.made

    def told(self, look: Callable[[QueueReader], _Index]) -> _Index:
        """What a look for indexes finds; errors say that the messages are stored nevertheless."""
        try:
            try:
                return look(self.reader)
            except ClosedError:
                if self._again is None:
                    raise
                return self._looked_again(look, self._again)
        except (ClosedError, CorruptionError) as error:
            raise type(error)(
                f"the messages are stored, but their indexes can't be told: {error.message}",
                **error.context,
            ) from error

    def _looked_again(
        self, look: Callable[[QueueReader], _Index], again: Callable[[], CommitLog]
    ) -> _Index:
        """The same in the store as it is now: an index stays what it is."""
        try:
            log = again()
        except (NotFoundError, UnavailableError) as error:
            raise ClosedError(f"the store is closed, and not there any more: {error}") from error
        with closing(log):
            return look(QueueReader(log, self.name))

    def wake(self) -> None:
        """Have who waits look whether it is to go on."""
        self._log.wake_waiters()

    def receiver(self, group: str) -> GroupReceiver:
        """What receives for a group."""
        found = self._receivers.get(group) if isinstance(group, str) else None
        if found is None:
            found = GroupReceiver(self._log, self.name, self.reader, group)
            self._receivers[group] = found
        return found


class _Closed:
    """What stands in a closed handle for all that it needs."""

    def __getattr__(self, _name: str) -> Any:
        raise _closed()


def _closed() -> ClosedError:
    return ClosedError("these keyed queues are closed; take them from the store again")


class KeyedQueues(Resource):
    """The queues of one keyed topic: each has its messages from index 0 on, without gaps.

    The first put makes a queue. Safe for any threads, and for several processes at once. A context
    manager; whoever closes the store need not close them.
    """

    def __init__(self, shared: SharedQueues) -> None:
        #: The topic.
        self.name = shared.name
        self._shared = shared
        self._reader = shared.reader

    @cached_property
    def _producer(self) -> Producer:
        return self._shared.producer()

    def close(self) -> None:
        """Wait until all that was put is durable, and let go; the store stays open.

        A second call does nothing. Other handles of the topic go on.
        """
        shared = self._shared
        try:
            with suppress(ClosedError):
                self.flush()
        finally:
            closed: Any = _Closed()
            self._shared = self._reader = self.__dict__["_producer"] = closed
            with suppress(ClosedError):
                shared.wake()

    def _check_open(self) -> None:
        self._shared.check_open()

    def _is_closed(self) -> bool:
        return isinstance(self._shared, _Closed)

    def put(self, queue: str | bytes, message: bytes | str) -> Future[int]:
        """Append a message to a queue; the future of its index, done when it is durable.

        Messages of one caller to one queue stay in order. InvalidRequestError for a bad name or
        message at once, what a `send` may meet through the future.
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
        """Append messages to queues, all or none, and return when they are durable.

        The index of each is worked out when it is looked at. Sequences have equal length; errors
        are raised. A callback of a put can't wait (IllegalStateError): it uses `put`.
        """
        columns = [column_of("queues", queues), column_of("messages", messages)]
        if len(columns[0]) != len(columns[1]):
            raise InvalidRequestError(
                f"messages has {len(columns[1])} elements, queues has {len(columns[0])}"
            )
        return self._put_all(pa.table(columns, names=["queue", "value"]))

    def put_arrow(self, batch: pa.RecordBatch | pa.Table) -> Sequence[int]:
        """Append the messages of a RecordBatch or Table with the columns `queue` and `value`.

        Both are binary or text, without nulls. As `put_batch` else.
        """
        return self._put_all(batch)

    def _put_all(self, data: pa.RecordBatch | pa.Table) -> Sequence[int]:
        self._check_open()  # also where there is nothing to put
        table = checked_table(data)
        if not table.num_rows:
            return IndexSequence(0, list)
        self._producer._check_waits()  # before anything is sent
        sent: Any = self._producer.send_arrow(self.name, table)
        ((first, _),) = sent.result().offsets.values()
        keys, topic_id = table.column("key"), sent[0].topic_id
        shared = self._shared  # which stays when the handle is closed
        return IndexSequence(
            len(keys), lambda: shared.told(lambda reader: _indexes(reader, keys, first, topic_id))
        )

    def delete(self, *queues: str | bytes) -> None:
        """End queues with all that was put to them so far, and return when that is durable.

        All or none, by one small commit, however many messages they have. They are unknown then,
        and a put begins at index 0 again. An unknown queue stays one. Errors are raised.
        """
        self._check_open()
        names = [queue_name(queue) for queue in queues]
        if names:
            self._producer._check_waits()
            self._producer.send_batch(self.name, [None] * len(names), names).result()

    def get(self, queue: str | bytes, offset: int, num: int) -> list[bytes]:
        """The messages of a queue from an index on, at most `num`; none of an unknown queue.

        OffsetOutOfRangeError, which says what the queue has, for an index that is given up. Where
        a repair cut out what may have been among them, DataLossError, once; call again to go on.
        """
        found: list[bytes] = self._messages(queue, offset, num).to_pylist()
        return found

    def get_arrow(self, queue: str | bytes, offset: int, num: int) -> pa.Table:
        """The same as a table with the columns `index` (int64) and `value` (binary)."""
        values = self._messages(queue, offset, num)
        indexes = number_column(np.fromiter(range(offset, offset + len(values)), np.int64))
        return pa.table({"index": indexes, "value": values})

    def get_many(
        self, queues: Sequence[str | bytes], offsets: int | Sequence[int] | None, num: int
    ) -> pa.Table:
        """At most `num` messages of each of many queues, from an index on or each from its own.

        None is the first that each has. A table with the columns `queue` (binary), `index` and
        `value`, in the order of `queues`; much quicker than a `get` for each, with its errors.
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
        """How many messages a queue has now; 0 for an unknown one. KmqWarning at a damaged end."""
        return self._shared.warned(self._reader.size(queue_name(queue)))

    def span(self, queue: str | bytes) -> tuple[int, int]:
        """The index of the first message that a queue has now, and the next one that is given.

        Both are 0 for an unknown queue; they are equal where all messages went by retention.
        """
        return self._shared.warned(self._reader.span(queue_name(queue)))

    def names(self) -> list[str | bytes]:
        """The names of all queues with messages, in the order of their bytes; text where UTF-8."""
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
        """The oldest messages of a queue that its group has not acknowledged and nobody holds.

        At most `max_records`, as soon as there are some; none after `timeout` seconds (None
        waits for ever). Each is held for `lock_timeout` seconds; not answered by then it comes
        again. Each group gets every message. At most 1,000 of a queue are under way at a time.
        A group has no % in its name here.
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
        """The same, and none once a wait was stopped."""
        receiver, name = self._shared.receiver(group), queue_name(queue)

        def ends() -> bool:
            return self._is_closed() or stopped()

        found = receiver.receive(name, most, timeout, lock_timeout, stopped=ends)
        if not found:
            self._check_open()
        return found

    def _wake(self) -> None:
        """Have a receive that waits look whether it was stopped."""
        self._shared.wake()

    def ack(self, deliveries: KeyedDelivery | Iterable[KeyedDelivery]) -> None:
        """These are done, of any queues of one group: one delivery or some, all in one commit.

        LeaseExpiredError when one comes too late, InvalidRequestError for one of another topic;
        then nothing is changed for any of them.
        """
        self._check_open()
        some = checked_deliveries(self.name, deliveries)
        groups = {each.group for each in some}
        if len(groups) > 1:
            raise InvalidRequestError("deliveries of several groups: acknowledge each group's")
        for group in groups:
            self._shared.receiver(group).ack(some)

    def lag(self, queue: str | bytes, *, group: str = "default") -> int:
        """How many messages of a queue a group has not acknowledged."""
        return self._shared.warned(self._shared.receiver(group).lag(queue_name(queue)))

    def flush(self) -> None:
        """Return when everything that was put is durable.

        IllegalStateError in a callback of one of these puts, which can't wait for the others.
        """
        self._check_open()
        if self._shared.made is not None:
            self._shared.made._check_waits()
            self._shared.made.flush()

    def __repr__(self) -> str:
        return f"KeyedQueues({self.name!r})"


class _Put(SendFuture[int]):
    """The future of a put: that of its send, and what turns its place into an index."""

    __slots__ = ()

    _shared: SharedQueues = property(itemgetter(2))  # type: ignore[assignment]
    _queue: bytes = property(itemgetter(3))  # type: ignore[assignment]

    def result(self, timeout: float | None = None) -> int:
        """The index of the message; raises the send's error, or KmqTimeoutError."""
        place: Any = super().result(timeout)
        offset, sends = _known(place.offset), self._outcome
        topic_id: bytes = sends.topic_id  # type: ignore[attr-defined]
        return self._shared.told(lambda reader: reader.index_of(self._queue, offset, topic_id))


def _indexes(reader: QueueReader, keys: pa.ChunkedArray, first: int, topic_id: bytes) -> list[int]:
    """The indexes of messages with these queues that stand from an offset of a topic on."""
    found: list[int] = []
    for some in keys.chunks:
        at = _known(first) + len(found)
        found += reader.indexes_of(some, at, topic_id).tolist()
    return found


def _known(offset: int) -> int:
    if offset < 0:
        raise NotFoundError(
            "the messages are stored, but their commit was collected before anybody could tell "
            "where: their indexes are not known"
        )
    return offset
