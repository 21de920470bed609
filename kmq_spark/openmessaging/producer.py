"""The producer: a message is a record of kmq's producer, which a process's producers share."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from kmq_spark.client.encoding.routing import Router
from kmq_spark.client.encoding.storable import one_is_unstorable, why_one_is_unstorable
from kmq_spark.client.encoding.waiting_extras import waiting_bytes
from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.sending import producer
from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging import stored
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.key_value import BothSpellings, KeyValue, set_checked
from kmq_spark.openmessaging.message import (
    PLACING,
    BytesMessage,
    SendResult,
    check_schedule,
    partition_of,
)
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.objects.fork import reopen_in_child

#: After this many sends, those that are stored are forgotten.
_REMEMBERED = 1_024


class Promise(SendFuture[Any], BothSpellings):
    """The future that `send_async` returns, with OpenMessaging's names as well."""

    sent: SendResult

    def result(self, timeout: float | None = None) -> SendResult:
        """Return the SendResult once the message is stored; raises the error of a refused one."""
        super().result(timeout)
        return self.sent

    get, is_done, add_listener = result, SendFuture.done, SendFuture.add_done_callback


class Producer(StoreUser):
    """Sends messages to topics and queues, which it makes when missing; for any threads.

    The messages of one producer to a topic or queue are stored in the order in which they were
    sent. After `flush` they are on disk.
    """

    def _begin(self, key_value: KeyValue) -> None:
        self._producer = self._shared.producer
        self._spread = self._log.environment.new_uuid().int
        #: Per topic and queue: the id of what stores its messages, and the partition of those that
        #: name none.
        self._places: dict[tuple[str, Any], tuple[bytes, int]] = {}
        self._host = self._store.url
        self._is_remote = self._log.is_remote
        self._ending.callback(self._settle)
        self._after_fork()
        reopen_in_child(self._after_fork)

    def _after_fork(self) -> None:
        """Forget pending messages in the child: the parent sends them."""
        #: Outcome and index of each send in turn: fewer objects to collect than futures.
        self._sent: deque[Any] = deque()
        self._failure: BaseException | None = None
        self._forgetting = threading.Lock()

    def create_bytes_message_to_topic(self, topic: str, body: bytes) -> BytesMessage:
        """Return a message for every reader of the topic."""
        return self._message("Topic", topic, body)

    def create_bytes_message_to_queue(self, queue: str, body: bytes) -> BytesMessage:
        """Return a message for the readers of one queue only."""
        return self._message("Queue", queue, body)

    def _message(self, kind: str, name: str, body: bytes) -> BytesMessage:
        if type(body) is not bytes:
            if not isinstance(body, bytes | bytearray | memoryview):
                raise InvalidRequestError(f"a body must be bytes, not {type(body).__name__}")
            body = bytes(body)
        headers: dict[str, Any] = {}
        set_checked(headers, kind, name)
        if self._is_remote:  # on a disk, all messages are born on its host
            headers["BornHost"] = stored.born_host()
        return BytesMessage(body, headers, {})

    def send(self, message: BytesMessage, properties: KeyValue | None = None) -> SendResult:
        """Send a message; its result waits, when asked, until the message is stored.

        InvalidRequestError for a message without topic and queue, with both, or too large.
        `properties` exists for other implementations, and is ignored.
        """
        if self._closed_by is not None:
            self._check_open()
        result = self._put(self._producer, message)
        self._sent.extend(result.future)  # one call: no other thread comes in between
        if not len(self._sent) % (2 * _REMEMBERED):
            self._forget()
        return result

    def send_async(self, message: BytesMessage, properties: KeyValue | None = None) -> Promise:
        """Send a message; the future gives its SendResult once it is stored."""
        sent = self.send(message, properties)
        promise: Promise = Promise(sent.future)
        promise.sent = sent
        return promise

    def send_oneway(self, message: BytesMessage, properties: KeyValue | None = None) -> None:
        """Send a message without a result; `flush` raises when it could not be stored."""
        self.send(message, properties)

    def create_batch_to_partition(self, name: str) -> BatchToPartition:
        """Return a batch of messages for one topic or queue: all are stored, or none.

        `name`: a topic, a queue, or one partition of a topic (`topic:partition`).
        """
        return BatchToPartition(self, name)

    def store_whole(self, messages: list[BytesMessage], partition: int | None) -> None:
        """Store messages of one topic or queue, all or none, behind everything sent before."""
        self._check_open()
        self._shared.settle()
        if partition is None:
            _, partition = self._place(_target_of(messages[0]))
        with self._store.producer() as engine, engine.transaction():
            for message in messages:
                self._put(engine, message, partition)

    def _put(
        self, engine: producer.Producer, message: BytesMessage, partition: int | None = None
    ) -> SendResult:
        topic, number = self._place(_target_of(message))
        headers = message.header_values
        body, key = message.body or b"", None
        if partition is not None or not PLACING.isdisjoint(headers):
            if "ScheduleExpression" in headers:
                now = self._log.environment.now_us() / 1000
                check_schedule(headers["ScheduleExpression"], now)
            key = stored.key_of(headers)
            number = self._partition(headers, topic, number) if partition is None else partition
        extras = stored.extras_of(message, number)
        is_common = key is None and partition is None and type(extras) is bytes
        if not is_common or len(body) + len(extras) > topic.settings.max_record_bytes:
            size = len(body) + len(key or b"") + waiting_bytes(extras)
            if one_is_unstorable(topic, size, number, key):
                raise why_one_is_unstorable(topic, size, number, key)
        future = engine._add(topic.name, body, key, extras)
        message.sent = result = SendResult(future, topic.name, self._host)
        return result

    def _place(self, target: tuple[str, Any]) -> tuple[Topic, int]:
        """The topic of messages, or the log of their queue, which is made unless it is there.

        And the partition of those for which nobody chose one: as long as there is the topic it is
        the same one, so that the order is kept.
        """
        topic_id, number = self._places.get(target, (b"", 0))
        topic = self._log.known_state.topic_by_id(topic_id)
        if topic is None:
            topic = self._log_of(*target)
            number = self._spread % topic.partitions
            self._places[target] = topic.id, number
        return topic, number

    def _partition(self, headers: dict[str, Any], topic: Topic, own: int) -> int:
        chosen, key = headers.get("ShardingPartition"), headers.get("ShardingKey")
        if type(chosen) is int:
            return chosen % topic.partitions
        if chosen is not None or key is not None:
            return Router.by_key(topic, str(key if chosen is None else chosen).encode())
        return own

    def flush(self) -> None:
        """Wait until everything sent is on disk; raises the error of the first refused message."""
        self._check_open()
        self._settle()

    def _settle(self) -> None:
        self._producer.flush()
        self._forget()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _forget(self) -> None:
        """Forget what is stored or refused, but for the first error, of which `flush` tells."""
        with self._forgetting:
            sent = self._sent  # other threads go on at its end
            while sent and sent[0].done:
                outcome, index = sent.popleft(), sent.popleft()
                self._failure = self._failure or outcome.error(index)


class BatchToPartition(BothSpellings):
    """Messages that `commit` stores all or not at all."""

    def __init__(self, producer: Producer, name: str) -> None:
        self._producer = producer
        self._name, self._partition = partition_of(name)
        self._messages: list[BytesMessage] = []

    def send(self, message: BytesMessage) -> None:
        """Add a message; InvalidRequestError when it is for another topic or queue."""
        target = _target_of(message)
        if self._name != target[1] or any(_target_of(m) != target for m in self._messages[:1]):
            raise InvalidRequestError(
                f"the batch is for {self._name}, the message for {target[0]} {target[1]}"
            )
        self._messages.append(message)

    def commit(self) -> None:
        """Store the messages; returns when they are on disk. An error means that none is stored."""
        messages, self._messages = self._messages, []
        if messages:
            self._producer.store_whole(messages, self._partition)

    def rollback(self) -> None:
        """Forget the messages."""
        self._messages = []

    close = rollback


def _target_of(message: BytesMessage) -> tuple[str, Any]:
    """Return "Topic" or "Queue", and the name that a message is for."""
    if type(message) is not BytesMessage:
        raise InvalidRequestError(f"only messages of this producer can be sent, not {message!r}")
    topic, queue = message.header_values.get("Topic"), message.header_values.get("Queue")
    if (topic is None) == (queue is None):
        raise InvalidRequestError(
            f"a message is for one topic or one queue, not for topic {topic} and queue {queue}"
        )
    return ("Queue", queue) if topic is None else ("Topic", topic)
