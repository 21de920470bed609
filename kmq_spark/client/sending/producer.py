"""The producer: `send` returns a future at once, and a thread of the producer commits."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - pyarrow's first array needs it: too late at exit
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kmq_spark.client.encoding.routing import Partitioner, Router
from kmq_spark.client.encoding.waiting_extras import WaitingExtras, waiting_extras
from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.arguments import checked_timeout
from kmq_spark.client.handles.at_end import at_end, not_at_end
from kmq_spark.client.handles.resource import Resource
from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.records.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.records.values import (
    Headers,
    Properties,
    checked_optional_partition,
    checked_uniq,
    to_bytes,
)
from kmq_spark.client.sending.batch_columns import by_position, common_length, keys_in_bytes
from kmq_spark.client.sending.commits import Commits
from kmq_spark.client.sending.committer import Committer
from kmq_spark.client.sending.encoder import Encoder
from kmq_spark.client.sending.pending import Pending
from kmq_spark.client.sending.schedule import scheduled
from kmq_spark.client.sending.sends import ArrowSend, BatchSend, OnDelivery, Sends
from kmq_spark.client.sending.topic_arrow import batches_of
from kmq_spark.client.sending.transactional import Transactional
from kmq_spark.client.typed.rows import Value, value_of
from kmq_spark.errors import ClosedError, IllegalStateError, InvalidRequestError, KmqTimeoutError
from kmq_storage.format.entries import ProducerEntry
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.names import check_name, checked_queue_log
from kmq_storage.objects.fork import reopen_in_child


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The options of a producer; times in seconds, sizes in bytes."""

    name: str | None
    #: Whether a forked child is refused, and does not go on under another name.
    transactional: bool
    linger: float
    batch_bytes: int
    max_pending_bytes: int
    partitioner: str | Partitioner
    durable: bool


def identity(name: str | None, transactional_id: str | None) -> str | None:
    """Return the identity of a producer, which may be given under either name."""
    given = {check_name("producer", each) for each in (name, transactional_id) if each is not None}
    if len(given) > 1:
        raise InvalidRequestError(
            f"name {name!r} and transactional_id {transactional_id!r} are two identities, and a "
            "producer has one: give one of them",
            option="transactional_id",
        )
    return given.pop() if given else None


class Producer(Resource, Transactional):
    """Sends records to topics and queues; safe for any number of threads.

    The records that a producer sends to one topic are stored in the order of the calls. A producer
    is a context manager, and closing it flushes; a closed producer raises ClosedError.
    """

    def __init__(self, log: CommitLog, settings: ProducerSettings) -> None:
        check_writable(log.files)
        self._log = log
        self._settings = settings
        self._router = Router(settings.partitioner)
        self._transaction = None
        self._open(settings.name)
        reopen_in_child(self._after_fork)

    def _open(self, name: str | None) -> None:
        settings, log = self._settings, self._log
        self._closed = False
        self._pending = Pending(
            log.environment,
            linger=settings.linger,
            batch_bytes=settings.batch_bytes,
            max_bytes=settings.max_pending_bytes,
        )
        self._encoder = Encoder(log, self._router, durable=settings.durable)
        self._committer = Committer(
            log,
            self._encoder,
            name=name or log.environment.new_uuid().hex,
            epoch=_open_epoch(log, name) if name else 0,
        )
        self._commits = Commits(log, self._pending, self._committer, durable=settings.durable)
        self._lingers = settings.linger > 0

    def _start(self) -> None:
        """Begin to work; Ctrl-C meanwhile leaves nothing behind."""
        at_end(self.close)
        try:
            self._commits.start()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Producer({self._log.files.url!r})"

    def _after_fork(self) -> None:
        """Start empty in the child: pending records and a transactional id stay the parent's."""
        if self._closed:
            return
        self._open(None)
        self._commits.start()
        self._leave_to_parent()
        if self._settings.transactional:
            self._pending.close(_is_the_parents)

    def send(
        self,
        topic: str,
        value: Any,
        key: bytes | str | None = None,
        *,
        headers: Headers | None = None,
        properties: Properties | None = None,
        partition: int | None = None,
        timestamp: datetime | None = None,
        uniq: str | bytes | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Send one record; the future gives its place once it is durable.

        Args:
            topic: The topic.
            value: Bytes or text; for a typed topic a dict or dataclass with its columns. None is a
                tombstone.
            key: Bytes or text; records of one key go to one partition.
            headers: A mapping or pairs of name and value (bytes, text or None).
            properties: A mapping of names to int (64 bit), float, text, bytes or bool.
            partition: The partition, in place of the partitioner's choice.
            timestamp: A datetime with a time zone; by default now.
            uniq: Text or bytes that name the record. A second one of the same `uniq` within the
                topic's `uniq_window` isn't stored: its metadata has the first one's place and
                `duplicate=True`.
            on_delivery: Called as `on_delivery(error, metadata)` in the producer's thread, where it
                must not wait for another send.

        Waits while `max_pending_bytes` are pending. Raises at once: InvalidRequestError (a wrong
        type), ClosedError. Through the future and `on_delivery`: NotFoundError, InvalidRequestError
        (too large, no such partition), QueueFullError, FencedError, UnavailableError.
        """
        if type(value) is not bytes:
            value = value_of(self._log, topic, value, key)
        if type(key) is not bytes and key is not None:
            key = to_bytes("key", key)
        extras = None
        if (
            headers is not None
            or properties is not None
            or partition is not None
            or timestamp is not None
            or uniq is not None
        ):
            extras = waiting_extras(
                headers, properties, partition, timestamp, uniq=checked_uniq(uniq)
            )
        if on_delivery is not None and not callable(on_delivery):
            raise InvalidRequestError(
                f"on_delivery must be callable, not {on_delivery!r}", field="on_delivery"
            )
        future = self._pending.add(topic, value, key, extras, on_delivery)
        if not self._lingers and future.first:  # as in `_add`, without the cost of a call
            self._commits.sent()
        return future

    def _add(
        self, topic: str, value: Value, key: bytes | None, extras: WaitingExtras | None
    ) -> SendFuture[RecordMetadata]:
        """Send a checked record, whose topic may be a queue's own log."""
        future = self._pending.add_to_queue(topic, value, key, extras, None)
        if not self._lingers and future.first:
            self._commits.sent()
        return future

    def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[bytes | str | None] | None = None,
        *,
        headers: Sequence[Headers | None] | None = None,
        properties: Sequence[Properties | None] | None = None,
        partition: int | None = None,
        timestamps: Sequence[datetime | None] | None = None,
    ) -> Future[list[RecordMetadata]]:
        """Send several records as one unit: all of them are stored, or none.

        `values` and each of `keys`, `headers`, `properties`, `timestamps` that is given are
        sequences with an element per record. Elements and errors are those of `send`. The future
        gives a list of RecordMetadata.
        """
        check_name("topic", topic)
        count = common_length(
            values, keys=keys, headers=headers, properties=properties, timestamps=timestamps
        )
        values, keys, headers, properties, timestamps = (
            by_position(column) for column in (values, keys, headers, properties, timestamps)
        )
        batch = BatchSend(topic, self._pending.expedite)
        batch.values = self._all_values(topic, values, keys)
        batch.keys = keys_in_bytes(keys) if keys is not None else [None] * count
        batch.times = [self._log.environment.now_ns()] * count
        if any(each is not None for each in (headers, properties, partition, timestamps)):
            batch.has_plain = True
            batch.extras = {
                row: waiting_extras(
                    headers[row] if headers is not None else None,
                    properties[row] if properties is not None else None,
                    partition,
                    timestamps[row] if timestamps is not None else None,
                )
                for row in range(count)
            }
        batch.size = sum(len(value) for value in batch.values if value) + 64 * count
        return self._put(batch)

    def send_arrow(
        self, topic: str, data: Any, *, partition: int | None = None
    ) -> Future[BatchMetadata]:
        """Send a RecordBatch, Table or RecordBatchReader of pyarrow as one unit: all rows, or none.

        Columns for an untyped topic: `value`, and optionally `key` (both binary or string),
        `partition` (integer; null: the partitioner chooses), `timestamp` (with a time zone),
        `headers` (list<struct<key, value>>), `properties` (as `Store.read` gives them). For a typed
        topic: its own columns, and optionally `_key`, `_partition`, `_timestamp`, `_headers`,
        `_properties`.

        Wrong columns and types are InvalidRequestError, at once where the topic is known. Other
        errors are those of `send`.
        """
        check_name("topic", topic)
        return self._send_arrow(topic, data, checked_optional_partition(partition))

    def _send_arrow(self, topic: str, data: Any, partition: int | None) -> Future[BatchMetadata]:
        batches = batches_of(self._log, topic, data)
        send = ArrowSend(topic, batches, partition, self._pending.expedite)
        if not self._in_transaction:
            self._encoder.prepare(send)
        return self._put(send)

    def _all_values(
        self, topic: str, values: Sequence[Any], keys: Sequence[Any] | None
    ) -> list[Value]:
        return [
            value
            if type(value) is bytes
            else value_of(self._log, topic, value, None if keys is None else keys[row])
            for row, value in enumerate(values)
        ]

    def _put(self, sends: Sends) -> Future[Any]:
        if len(sends):
            self._pending.put(sends)
            self._commits.sent_batch(sends)
        else:
            self._pending.check_open()
            sends.finish()
        future: Future[Any] = SendFuture((sends, 0))
        return future

    def send_to_queue(
        self,
        queue: str,
        value: bytes | str,
        key: bytes | str | None = None,
        *,
        headers: Headers | None = None,
        properties: Properties | None = None,
        delay: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        expires_at: datetime | None = None,
        priority: int | None = None,
        uniq: str | bytes | None = None,
    ) -> Future[RecordMetadata]:
        """Send one record to one queue, which alone reads it; errors as for `send`.

        Args:
            queue: The queue.
            value, key, headers, properties, uniq: As for `send`; the value must not be None.
            delay: Seconds (or timedelta) until it is handed out.
            deliver_at: A datetime with a time zone instead of a delay.
            expires_at: From then on it is handed to nobody.
            priority: 0 to 9, 4 by default; higher ones are handed out first. Ordered queues refuse
                it.

        The metadata has the queue's name, and no topic.
        """
        log = checked_queue_log(queue)
        if type(value) is not bytes:
            value = to_bytes("value", value, "bytes or text")
        if type(key) is not bytes and key is not None:
            key = to_bytes("key", key)
        digest = checked_uniq(uniq)
        extras = schedule = None
        if not (delay is None and deliver_at is None and expires_at is None and priority is None):
            now = self._log.now_us()
            schedule = scheduled(now, delay, deliver_at, expires_at, priority=priority)
        if headers is not None or properties is not None or schedule is not None or digest:
            extras = waiting_extras(headers, properties, schedule=schedule, uniq=digest)
        return self._add(log, value, key, extras)

    def send_arrow_to_queue(self, queue: str, data: Any) -> Future[BatchMetadata]:
        """Send Arrow data to one queue as one unit; columns and errors as for `send_arrow`.

        The metadata has no topic.
        """
        return self._send_arrow(checked_queue_log(queue), data, 0)

    def _check_waits(self) -> None:
        """IllegalStateError in a callback of this producer: its thread would wait for itself."""
        self._pending.check_waits()

    def flush(self, timeout: float | None = None) -> int:
        """Wait until everything sent so far is durable; return how many records are not.

        That is 0, unless `timeout` seconds passed before. Records that are sent meanwhile, or in an
        open transaction, are neither waited for nor counted.
        """
        return self._pending.flush(checked_timeout(timeout))

    def __len__(self) -> int:
        """Return how many records are not durable yet."""
        return len(self._pending)

    def __bool__(self) -> bool:
        """Always true: else `producer or other` would depend on what is pending."""
        return True

    @closes_apart
    def close(self, timeout: float | None = None) -> None:
        """Abort an open transaction, commit everything pending, and accept nothing more.

        A second call does nothing. KmqTimeoutError when records are not durable after `timeout`
        seconds; committing goes on.
        """
        timeout = checked_timeout(timeout)
        self._closed = True
        self._abort(ClosedError("the producer was closed before the commit"))
        self._pending.close()
        if threading.current_thread() in self._pending.workers:
            return  # a callback must not wait for itself
        worker = self._commits.worker
        if worker.ident is None:  # its start was interrupted
            not_at_end(self.close)
            return
        worker.join(timeout)
        if worker.is_alive():
            if left := len(self):
                raise KmqTimeoutError(
                    f"{left} records are not durable after {timeout:g} s", timeout=timeout
                )
            return  # it only ends or runs callbacks: the interpreter's exit waits for that
        not_at_end(self.close)

    def _check_open(self) -> None:
        self._pending.check_open()


def _is_the_parents() -> IllegalStateError:
    return IllegalStateError(
        "this producer has a transactional id, which belongs to the parent process: open another "
        "producer here"
    )


def _open_epoch(log: CommitLog, name: str) -> int:
    """Open the next epoch of a named producer; the earlier one is fenced from now on."""
    while True:
        known = log.written_state().producers.get(name)
        epoch = known.epoch + 1 if known else 1  # 0 is of those that nobody opens again
        try:
            opened = log.append([Unit((ProducerEntry(name, epoch, -1),))])
        except (DuplicateCommitError, RefusedError):
            continue  # another process opened the same name at the same moment
        log.sync(opened)  # else a failed sync could let the next producer have the same
        return epoch
