"""The producer: messages gather per topic or queue, and are stored together."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from kmq_spark.client.arrow_extras import sizes_of
from kmq_spark.client.metadata import BatchMetadata
from kmq_spark.client.partitioner import partitions_by_key
from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.columns import Row, batch_of
from kmq_spark.openmessaging.key_value import KeyValue, put
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.spelling import also_in_camel_case
from kmq_storage.names import check_name, queue_log, queue_of_log
from kmq_storage.objects.fork import reopen_in_child

#: What makes a batch.
_ROWS, _BYTES = 4_096, 1_048_576
#: How long messages wait for others: for a few steps, as long as so many come in each.
_STEP, _BUSY, _STEPS = 0.005, 100, 100
#: A topic, or a queue's own log, and the partition.
Place = tuple[str, int]


class _Gathered:
    """Messages of one place that are stored together."""

    __slots__ = ("place", "promises", "rows", "sent", "size")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rows: list[Row] = []
        self.size = 0
        self.promises: list[tuple[Promise, SendResult]] = []
        self.sent: Future[BatchMetadata] | None = None


@also_in_camel_case
class SendResult:
    """Where a message is stored; asking waits until it is."""

    __slots__ = ("_batch", "_producer", "_row")

    def __init__(self, producer: Producer, batch: _Gathered, row: int) -> None:
        self._producer, self._batch, self._row = producer, batch, row

    def message_id(self) -> str:
        """The message's id, by which it can be acknowledged; the error when it was refused."""
        topic, partition = self._batch.place
        first, _ = self._producer.handed_over(self._batch).result().offsets[partition]
        return f"{topic}:{partition}:{first + self._row}"

    def headers(self) -> dict[str, Any]:
        """The headers that are set when a message is stored."""
        return self._producer.stored_headers(self.message_id())


@also_in_camel_case
class Promise(Future[SendResult]):
    """What `send_async` gives: a future, also under the names of OpenMessaging."""

    get = Future.result
    is_done = Future.done
    add_listener = Future.add_done_callback


@also_in_camel_case
class Producer(StoreUser):
    """Sends messages to topics and queues, which it makes; any number of threads may use it.

    Per topic or queue the messages of one producer are stored in the order in which they were
    sent. After `flush` they are on disk.
    """

    def __init__(self, key_value: KeyValue | Mapping[str, Any]) -> None:
        super().__init__(key_value)
        environment = self._store.log.environment
        self._now_ns, self._sleep = environment.now_ns, environment.sleep
        self._producer = self._store.producer()
        #: Where it puts what nobody chose a partition for: in one, so that the order is kept.
        self._spread = environment.new_uuid().int
        #: Per topic: its partitions, and the bytes of a message.
        self._limits: dict[str, tuple[int, int]] = {}
        self.after_fork_in_child()
        reopen_in_child(self)
        self._shared.producers.add(self)

    def after_fork_in_child(self) -> None:
        """What waits is the parent's to send."""
        self._lock = threading.RLock()
        self._batches: dict[Place, _Gathered] = {}
        self._sent: list[Future[BatchMetadata]] = []
        self._begun = threading.Event()
        #: Messages so far.
        self._count = 0
        self._thread: threading.Thread | None = None

    def create_bytes_message_to_topic(self, topic: str, body: bytes) -> BytesMessage:
        """A message for everyone who reads the topic."""
        return self._message("Topic", topic, body)

    def create_bytes_message_to_queue(self, queue: str, body: bytes) -> BytesMessage:
        """A message for the readers of one queue only."""
        return self._message("Queue", queue, body)

    def _message(self, kind: str, name: str, body: bytes) -> BytesMessage:
        if not isinstance(body, bytes | bytearray | memoryview):
            raise InvalidRequestError(f"a body must be bytes, not {type(body).__name__}")
        headers: dict[str, Any] = {}
        put(headers, kind, name)
        if self._store.log.is_remote:  # on a disk all are born on its host
            headers["BornHost"] = socket.gethostname()
        return BytesMessage(bytes(body), headers, {})

    def send(self, message: BytesMessage, properties: KeyValue | None = None) -> SendResult:
        """Send a message; the result is known soon, or when somebody asks for it.

        InvalidRequestError for one that is for no topic and no queue, for both, or too large.
        `properties` are for other implementations, and have no meaning here.
        """
        name, headers = _target(message), message.header_values()
        size = _size(message.get_body() or b"", headers, message.property_values())
        with self._lock:
            self._check_open()
            count, most = self._limits.get(name) or self._ensured(name)
            place = (name, 0 if count == 1 else self._partition(headers, count))
            batch = self._batches.get(place) or self._opened(place)
            result = SendResult(self, batch, len(batch.rows))
            row = _row(message, self._now_ns())
            if 4 * size > most:
                _check_size(row, most)
            batch.rows.append(row)
            batch.size += size
            self._count += 1
            if len(batch.rows) >= _ROWS or batch.size >= _BYTES:
                self._hand_over(batch)
        message.sent = result
        return result

    def send_async(self, message: BytesMessage, properties: KeyValue | None = None) -> Promise:
        """Send a message; the future has its SendResult when it is stored."""
        with self._lock:
            result, promise = self.send(message, properties), Promise()
            batch = result._batch
            if batch.sent is None:
                batch.promises.append((promise, result))
            else:
                _keep(batch.sent, [(promise, result)])
        return promise

    def send_oneway(self, message: BytesMessage, properties: KeyValue | None = None) -> None:
        """Send a message and forget it; `flush` tells when it could not be stored."""
        self.send(message, properties)

    def create_batch_to_partition(self, name: str) -> BatchToPartition:
        """Messages for one topic or queue that are stored all or not at all.

        `name`: a topic or queue, of a topic also `topic:partition`.
        """
        return BatchToPartition(self, name)

    def flush(self) -> None:
        """Return when everything sent is on disk; the error of the first that was refused."""
        self._check_open()
        self._flush()

    def _flush(self) -> None:
        self.settle()
        with self._lock:
            errors = [sent.exception() for sent in self._sent if sent.done()]
            self._sent = [sent for sent in self._sent if not sent.done()]
        for error in filter(None, errors):
            raise error

    def settle(self) -> None:
        """Wait until everything sent is stored, or refused; `flush` tells of errors."""
        with self._lock:
            for batch in list(self._batches.values()):
                self._hand_over(batch)
            sent = list(self._sent)
        for each in sent:
            each.exception()

    def _end(self) -> None:
        try:
            self._flush()
        finally:
            self._begun.set()
            self._producer.close()

    # --- what is shared with results and batches ------------------------------------------

    def handed_over(self, batch: _Gathered) -> Future[BatchMetadata]:
        """The future of a batch, which gathers no longer."""
        with self._lock:
            if batch.sent is None:
                self._hand_over(batch)
        assert batch.sent is not None, "handed over"
        return batch.sent

    def stored_headers(self, message_id: str) -> dict[str, Any]:
        """The headers of a message that was just stored."""
        now = self._now_ns() // 1_000_000
        return {"MessageId": message_id, "StoreTimestamp": now, "StoreHost": self._store.url}

    def store_whole(self, name: str, partition: int | None, messages: list[BytesMessage]) -> None:
        """Store messages of one topic or queue behind what was sent, all or none of them."""
        with self._lock:
            self._check_open()
            count, _ = self._limits.get(name) or self._ensured(name)
            chosen = self._spread % count if partition is None else partition
            earlier = self._batches.get((name, chosen))
            if earlier is not None:
                self._hand_over(earlier)
            batch = _Gathered((name, chosen))
            for message in messages:
                batch.rows.append(_row(message, self._now_ns()))
                message.sent = SendResult(self, batch, len(batch.rows) - 1)
            self._hand_over(batch)
            self._sent.pop()  # the caller is told
        assert batch.sent is not None, "handed over"
        batch.sent.result()

    # --- batches ----------------------------------------------------------------------------

    def _ensured(self, name: str) -> tuple[int, int]:
        """Partitions and largest message of a topic, which is made unless it is there."""
        queue, log = queue_of_log(name), self._store.log
        if log.refresh().find_topic(name) is None:
            if queue is None:
                self._store.create_topic(name)
            else:
                self._store.create_queue(queue)
        topic = log.refresh().topic(name)
        found = self._limits[name] = topic.partitions, topic.settings.max_record_bytes
        return found

    def _partition(self, headers: dict[str, Any], count: int) -> int:
        chosen, key = headers.get("ShardingPartition"), headers.get("ShardingKey")
        if chosen is not None:
            number = chosen if type(chosen) is int else zlib.crc32(str(chosen).encode())
            return number % count
        if key is not None:
            return int(partitions_by_key(pa.array([str(key).encode()]), count)[0])
        return self._spread % count

    def _opened(self, place: Place) -> _Gathered:
        batch = self._batches[place] = _Gathered(place)
        if self._thread is None:
            self._thread = threading.Thread(target=self._linger, name="kmq-oms", daemon=True)
            self._thread.start()
        self._begun.set()
        return batch

    def _linger(self) -> None:
        while self._begun.wait() and not self._closed:
            self._wait_while_busy()
            self._begun.clear()  # what begins from now on is seen in the next turn
            for batch in list(self._batches.values()):
                self.handed_over(batch)

    def _wait_while_busy(self) -> None:
        """Many topics at full speed would else make as many small batches."""
        seen = self._count
        for _ in range(_STEPS):
            self._sleep(_STEP)
            if self._count < seen + _BUSY:
                return
            seen = self._count

    def _hand_over(self, batch: _Gathered) -> None:
        """Have a batch committed behind those before it; with the lock held."""
        (name, partition), queue = batch.place, queue_of_log(batch.place[0])
        if self._batches.get(batch.place) is batch:
            del self._batches[batch.place]
        try:
            data = batch_of(batch.rows)
            batch.sent = (
                self._producer.send_arrow(name, data, partition=partition)
                if queue is None
                else self._producer.send_arrow_to_queue(queue, data)
            )
        except Exception as error:  # told by the future: nobody else may be there to hear it
            batch.sent = Future()
            batch.sent.set_exception(error)
        batch.rows = []
        self._sent = [each for each in self._sent if not _is_stored(each)]
        self._sent.append(batch.sent)
        if batch.promises:
            _keep(batch.sent, batch.promises)


@also_in_camel_case
class BatchToPartition:
    """Messages that are stored all or not at all, by `commit`."""

    def __init__(self, producer: Producer, name: str) -> None:
        self._producer = producer
        self._name, _, number = name.partition(":")
        self._partition = int(number) if number else None
        self._target: str | None = None
        self._messages: list[BytesMessage] = []

    def send(self, message: BytesMessage) -> None:
        """Add a message; InvalidRequestError for one to another topic or queue."""
        target = _target(message)
        if self._name != (queue_of_log(target) or target) or self._target not in (None, target):
            raise InvalidRequestError(f"the batch is for {self._name}, the message for {target}")
        self._target = target
        self._messages.append(message)

    def commit(self) -> None:
        """Store them and return when they are on disk; an error when none is stored."""
        messages, self._messages = self._messages, []
        if self._target is not None and messages:
            self._producer.store_whole(self._target, self._partition, messages)

    def rollback(self) -> None:
        """Forget them."""
        self._messages = []

    close = rollback


def _target(message: BytesMessage) -> str:
    """The topic of a message, or the log of its queue."""
    if type(message) is not BytesMessage:
        raise InvalidRequestError(f"only messages of this producer can be sent, not {message!r}")
    headers = message.header_values()
    topic, queue = headers.get("Topic"), headers.get("Queue")
    if (topic is None) == (queue is None):
        raise InvalidRequestError(
            f"a message is for one topic or one queue, not for topic {topic} and queue {queue}"
        )
    if queue is not None:
        return queue_log(queue)
    return topic if isinstance(topic, str) and ":" not in topic else check_name("topic", topic)


def _size(body: bytes, *values: dict[str, Any]) -> int:
    """About how many characters a message has."""
    size = len(body) + 32
    for some in values:
        for key, value in some.items():
            size += len(key) + (len(value) if type(value) is str else 24)
    return size


def _row(message: BytesMessage, now: int) -> Row:
    headers = message.header_values()
    key = headers.get("SearchKey", headers.get("ShardingKey"))
    found = None if key is None else str(key).encode()
    return message.get_body() or b"", found, headers.copy(), message.property_values().copy(), now


def _check_size(row: Row, most: int) -> None:
    batch = batch_of([row])
    size = len(row[0]) + len(row[1] or b"")
    size += int(sizes_of(batch["headers"])[0] + sizes_of(batch["properties"])[0])
    if size > most:
        raise InvalidRequestError(
            f"a message of {size} bytes is too large: its topic takes {most}", bytes=size
        )


def _is_stored(sent: Future[BatchMetadata]) -> bool:
    return sent.done() and sent.exception() is None


def _keep(sent: Future[BatchMetadata], promises: list[tuple[Promise, SendResult]]) -> None:
    """Resolve promises when their batch is stored, or refused."""

    def tell(done: Future[BatchMetadata]) -> None:
        error = done.exception()
        for promise, result in promises:
            if error is None:
                promise.set_result(result)
            else:
                promise.set_exception(error)

    sent.add_done_callback(tell)
