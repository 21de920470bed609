"""The producer: hands out futures at once, and commits what waits in a thread of its own."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - pyarrow's first array needs it: too late at exit
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kmq_spark.client.arguments import checked_timeout
from kmq_spark.client.at_end import at_end, not_at_end
from kmq_spark.client.commits import Commits
from kmq_spark.client.committer import Committer
from kmq_spark.client.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.pending import Pending
from kmq_spark.client.resource import Resource
from kmq_spark.client.routing import Partitioner, Router
from kmq_spark.client.schedule import scheduled
from kmq_spark.client.send_future import SendFuture
from kmq_spark.client.sends import ArrowSend, BatchSend, OnDelivery
from kmq_spark.client.topic_arrow import batches_of
from kmq_spark.client.transactional import Transactional
from kmq_spark.client.typed_rows import Value, value_of
from kmq_spark.client.values import (
    Headers,
    Properties,
    checked_optional_partition,
    checked_uniq,
    to_bytes,
)
from kmq_spark.client.waiting_extras import WaitingExtras, waiting_extras
from kmq_spark.errors import (
    ClosedError,
    IllegalStateError,
    InvalidRequestError,
    KmqTimeoutError,
)
from kmq_storage.format.entries import ProducerEntry
from kmq_storage.log.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.names import check_name, queue_log
from kmq_storage.objects.fork import reopen_in_child


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The options of a producer; times in seconds, sizes in bytes."""

    name: str | None = None
    #: Whether a forked child may not go on under another name.
    transactional: bool = False
    linger: float = 0.005
    batch_bytes: int = 1_048_576
    max_pending_bytes: int = 67_108_864
    partitioner: str | Partitioner = "murmur2"
    durable: bool = True


def identity(name: str | None, transactional_id: str | None) -> str | None:
    """What a producer is called, which two words may say."""
    given = {check_name("producer", each) for each in (name, transactional_id) if each is not None}
    if len(given) > 1:
        raise InvalidRequestError(
            f"a producer has one identity: name {name!r} or transactional_id {transactional_id!r}",
            option="transactional_id",
        )
    return given.pop() if given else None


class Producer(Resource, Transactional):
    """Sends records to topics; safe for any number of threads.

    Per topic, records are stored in the order of the calls. A closed producer raises
    ClosedError; closing flushes.
    """

    def __init__(self, log: CommitLog, settings: ProducerSettings) -> None:
        check_writable(log.files)
        self._log = log
        self._settings = settings
        self._router = Router(settings.partitioner)
        self._transaction = None
        self._open(settings.name)
        reopen_in_child(self)
        at_end(self.close)

    def _open(self, name: str | None) -> None:
        settings, log = self._settings, self._log
        self._closed = False
        self._pending = Pending(
            log.environment,
            linger=settings.linger,
            batch_bytes=settings.batch_bytes,
            max_bytes=settings.max_pending_bytes,
        )
        self._committer = Committer(
            log,
            self._router,
            name=name or log.environment.new_uuid().hex,
            epoch=_open_epoch(log, name) if name else 0,
            durable=settings.durable,
        )
        self._commits = Commits(log, self._pending, self._committer, durable=settings.durable)
        self._lingers = settings.linger > 0

    def __repr__(self) -> str:
        return f"Producer({self._log.files.url!r})"

    def after_fork_in_child(self) -> None:
        """Start empty in the child: what waits, and a transactional id, is the parent's."""
        if self._closed:
            return
        self._open(None)
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
        uniq: str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Future[RecordMetadata]:
        """Send one record (value None is a tombstone) and return the future of its place.

        The value is bytes or text, for a typed topic a dict or dataclass with its columns.
        Waits while `max_pending_bytes` are pending. InvalidRequestError for wrong types and
        ClosedError come at once; NotFoundError, InvalidRequestError (too large, no such
        partition), QueueFullError, FencedError and UnavailableError come through the future
        and `on_delivery(error, metadata)`, which runs in the producer's thread and must not
        wait for another send. Within the topic's `uniq_window` a second record with the same
        `uniq` is not stored: its metadata is the first one's place, with `duplicate=True`.
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
        future = self._pending.add(topic, value, key, extras, None)
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
        """Send records as one unit: all of them are stored, or none.

        Sequences have equal length; errors as for `send`.
        """
        check_name("topic", topic)
        count = _common_length(
            values, keys=keys, headers=headers, properties=properties, timestamps=timestamps
        )
        values, keys, headers, properties, timestamps = (
            _by_position(column) for column in (values, keys, headers, properties, timestamps)
        )
        batch = BatchSend(topic, self._pending.expedite)
        batch.values = self._all_values(topic, values, keys)
        batch.keys = _all_bytes("key", keys) if keys is not None else [None] * count
        batch.times = [self._log.environment.now_ns()] * count
        if any(each is not None for each in (headers, properties, partition, timestamps)):
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
        """Send a pyarrow RecordBatch, Table or RecordBatchReader as one unit.

        Columns: `value` and, when wanted, `key` (binary or string), `partition` (integer, null:
        the partitioner), `timestamp` (with a time zone), `headers` (list of struct of key and
        value), `properties` (as `Store.read` gives them); or those of a typed topic, and `_key`
        and so on. Wrong columns or types are InvalidRequestError at once; others as for `send`.
        """
        check_name("topic", topic)
        return self._send_arrow(topic, data, checked_optional_partition(partition))

    def _send_arrow(self, topic: str, data: Any, partition: int | None) -> Future[BatchMetadata]:
        batches = batches_of(self._log, topic, data)
        send = ArrowSend(topic, batches, partition, self._pending.expedite)
        if not self._in_transaction:
            self._committer.prepare(send)
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

    def _put(self, sends: Any) -> Future[Any]:
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
        uniq: str | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record to one queue, which no other queue gets; errors as for `send`.

        It is handed out after `delay` seconds or at `deliver_at`, to nobody from `expires_at` on,
        before others of a lower `priority` (0 to 9, 4 for all others). The metadata has no topic.
        """
        check_name("queue", queue, is_new=False)
        value = to_bytes("value", value, "bytes or text")
        key = None if key is None else to_bytes("key", key)
        digest = checked_uniq(uniq)
        now = self._log.now_us()
        schedule = scheduled(now, delay, deliver_at, expires_at, priority=priority)
        extras = None
        if headers is not None or properties is not None or schedule is not None or digest:
            extras = waiting_extras(headers, properties, schedule=schedule, uniq=digest)
        return self._add(queue_log(queue), value, key, extras)

    def send_arrow_to_queue(self, queue: str, data: Any) -> Future[BatchMetadata]:
        """Send Arrow data to one queue as one unit; columns and errors as for `send_arrow`.

        The metadata has no topic.
        """
        return self._send_arrow(queue_log(check_name("queue", queue, is_new=False)), data, 0)

    def _check_waits(self) -> None:
        """IllegalStateError in a callback of this producer, which can't wait for what it sends."""
        self._pending.check_waits()

    def flush(self, timeout: float | None = None) -> int:
        """Wait until everything sent before is durable; the number of records that are not.

        What is sent meanwhile, and what an open transaction sent, is neither waited for nor
        counted.
        """
        return self._pending.flush(checked_timeout(timeout))

    def __len__(self) -> int:
        """How many records are not durable yet."""
        return len(self._pending)

    def __bool__(self) -> bool:
        """A producer is one though nothing waits: `producer or other` is the producer."""
        return True

    def close(self, timeout: float | None = None) -> None:
        """Accept nothing more and return when all is committed; again is no error.

        An open transaction is aborted.

        KmqTimeoutError when that takes longer than `timeout` seconds: committing goes on.
        """
        timeout = checked_timeout(timeout)
        self._closed = True
        self._abort(ClosedError("the producer was closed before the commit"))
        self._pending.close()
        if threading.current_thread() in self._pending.workers:
            return  # a callback must not wait for itself
        worker = self._commits.worker
        worker.join(timeout)
        if worker.is_alive():
            if left := len(self):
                raise KmqTimeoutError(
                    f"{left} records are not durable after {timeout:g} s", timeout=timeout
                )
            return  # it only ends, or calls back, which the interpreter's exit waits for
        not_at_end(self.close)

    def _check_open(self) -> None:
        self._pending.check_open()


def _is_the_parents() -> IllegalStateError:
    return IllegalStateError(
        "this producer has a transactional id, and is the parent process's; open another one here"
    )


def _open_epoch(log: CommitLog, name: str) -> int:
    """Open the next epoch of a named producer; the earlier one is fenced from now on."""
    while True:
        known = log.written_state().producers.get(name)
        epoch = known.epoch + 1 if known else 1  # 0 is of those that nobody opens again
        try:
            log.append([Unit((ProducerEntry(name, epoch, -1),))])
        except (DuplicateCommitError, RefusedError):
            continue  # another one opened the same name at the same moment
        return epoch


def _common_length(values: object, **others: object) -> int:
    """The number of values; InvalidRequestError unless every other sequence has as many."""
    count = _length("values", values)
    for name, column in others.items():
        if column is not None and _length(name, column) != count:
            raise InvalidRequestError(
                f"{name} has {_length(name, column)} elements, values has {count}", field=name
            )
    return count


def _by_position(column: Any) -> Any:
    """What `[row]` gives the element of a row: not a label, as of a pandas Series, nor a scalar."""
    if hasattr(column, "to_pylist"):  # one of Arrow
        return column.to_pylist()
    return column if column is None or isinstance(column, list | tuple) else list(column)


#: Sequences, too, but of characters, bytes or names.
_NO_COLUMNS = (str, bytes, bytearray, Mapping)


def _length(name: str, column: Any) -> int:
    many = hasattr(column, "__getitem__") and not isinstance(column, _NO_COLUMNS)
    if not many or len(getattr(column, "shape", (1,))) != 1:  # a table: columns, not rows
        raise InvalidRequestError(
            f"{name} must be a sequence with an element per record, not {type(column).__name__}",
            field=name,
        )
    return len(column)


def _all_bytes(what: str, values: Sequence[bytes | str | None]) -> list[bytes | None]:
    return [
        value if type(value) is bytes or value is None else to_bytes(what, value)
        for value in values
    ]
