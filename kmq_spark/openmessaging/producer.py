"""The producer: a message is a record of kmq's producer, which all producers of a process share."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

from kmq_spark.client import producer
from kmq_spark.client.metadata import RecordMetadata
from kmq_spark.client.routing import Router
from kmq_spark.client.sends import RowSends
from kmq_spark.client.storable import unstorable, why_one_is_unstorable
from kmq_spark.errors import InvalidRequestError, KmqError
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.key_value import KeyValue, put
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.spelling import also_in_camel_case
from kmq_spark.openmessaging.stored import born_host, extras_of, message_id, partition_of
from kmq_storage.log.topic_state import Topic
from kmq_storage.names import check_name, queue_log, queue_of_log
from kmq_storage.objects.fork import reopen_in_child

#: So many outcomes are remembered before those are forgotten that are good.
_REMEMBERED = 1_024


@also_in_camel_case
class SendResult:
    """Where a message is stored; asking waits until it is."""

    __slots__ = ("_host", "delivery", "name")

    def __init__(self, delivery: Future[RecordMetadata], name: str, host: str) -> None:
        self.delivery, self.name, self._host = delivery, name, host

    def message_id(self) -> str:
        """The message's id, by which it can be acknowledged; the error when it was refused."""
        place = self.delivery.result()
        return message_id(self.name, place.partition, place.offset)

    def headers(self) -> dict[str, Any]:
        """The headers that are set when a message is stored."""
        time = self.delivery.result()[3] // 1000
        return {"MessageId": self.message_id(), "StoreTimestamp": time, "StoreHost": self._host}


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
        self._producer = self._shared.producer
        self._host = self._store.url
        #: Where it puts what nobody chose a partition for: in one, so that the order is kept.
        self._spread = self._store.log.environment.new_uuid().int
        self._topics: dict[str, Topic] = {}
        self.after_fork_in_child()
        reopen_in_child(self)

    def after_fork_in_child(self) -> None:
        """What waits is the parent's to send."""
        #: Rows of its own among those that are committed together, until these are good.
        self._sent: dict[RowSends, list[int]] = {}
        self._forget_at = _REMEMBERED

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
            headers["BornHost"] = born_host()
        return BytesMessage(bytes(body), headers, {})

    def send(self, message: BytesMessage, properties: KeyValue | None = None) -> SendResult:
        """Send a message; the result is known soon, or when somebody asks for it.

        InvalidRequestError for one that is for no topic and no queue, for both, or too large.
        `properties` are for other implementations, and have no meaning here.
        """
        self._check_open()
        result = message.sent = self._put(self._producer, message)
        outcome, index = cast("tuple[RowSends, int]", result.delivery)
        self._sent.setdefault(outcome, []).append(index)
        if len(self._sent) > self._forget_at:
            self._forget()
        return result

    def _put(
        self, engine: producer.Producer, message: BytesMessage, partition: int | None = None
    ) -> SendResult:
        name, headers = target_of(message), message.header_values()
        topic = self._topics.get(name) or self._ensured(name)
        key = headers.get("SearchKey", headers.get("ShardingKey"))
        body, key = message.get_body() or b"", None if key is None else str(key).encode()
        number = self._partition(headers, topic) if partition is None else partition
        extras = extras_of(headers, message.property_values(), number)
        size = len(body) + len(key or b"") + extras.size
        if unstorable(topic, size, number):
            raise why_one_is_unstorable(topic, size, number)
        return SendResult(engine._add(name, body, key, extras), name, self._host)

    def _ensured(self, name: str) -> Topic:
        """A topic, or a queue's own log, which is made unless it is there."""
        queue, log = queue_of_log(name), self._store.log
        if log.refresh().find_topic(name) is None:
            if queue is None:
                self._store.create_topic(name)
            else:
                self._store.create_queue(queue)
        topic = self._topics[name] = log.refresh().topic(name)
        return topic

    def _partition(self, headers: dict[str, Any], topic: Topic) -> int:
        chosen, key = headers.get("ShardingPartition"), headers.get("ShardingKey")
        if chosen is not None:
            number = chosen if type(chosen) is int else zlib.crc32(str(chosen).encode())
            return number % topic.partitions
        if key is not None:
            return Router.by_key(topic, str(key).encode())
        return self._spread % topic.partitions

    def _forget(self) -> None:
        """Forget what is stored; `flush` tells of the rest."""
        for outcome in list(self._sent):
            if outcome.done and outcome.first_error() is None:
                self._sent.pop(outcome, None)
        self._forget_at = 2 * len(self._sent) + _REMEMBERED

    def send_async(self, message: BytesMessage, properties: KeyValue | None = None) -> Promise:
        """Send a message; the future has its SendResult when it is stored."""
        result, promise = self.send(message, properties), Promise()

        def tell(stored: Future[RecordMetadata]) -> None:
            error = stored.exception()
            promise.set_result(result) if error is None else promise.set_exception(error)

        result.delivery.add_done_callback(tell)
        return promise

    def send_oneway(self, message: BytesMessage, properties: KeyValue | None = None) -> None:
        """Send a message and forget it; `flush` tells when it could not be stored."""
        self.send(message, properties)

    def create_batch_to_partition(self, name: str) -> BatchToPartition:
        """Messages for one topic or queue that are stored all or not at all.

        `name`: a topic or queue, of a topic also `topic:partition`.
        """
        return BatchToPartition(self, name)

    def store_whole(self, messages: list[BytesMessage], partition: int | None) -> None:
        """Store messages of one topic or queue behind what was sent, all or none of them."""
        self._check_open()
        self.settle()
        chosen = self._spread % self._ensured(target_of(messages[0])).partitions
        with self._store.producer() as engine, engine.transaction():
            for message in messages:
                message.sent = self._put(
                    engine, message, chosen if partition is None else partition
                )

    def flush(self) -> None:
        """Return when everything sent is on disk; the error of the first that was refused."""
        self._check_open()
        self._flush()

    def _flush(self) -> None:
        self.settle()
        self._forget()
        errors: list[KmqError | None] = []
        for outcome in [each for each in list(self._sent) if each.done]:
            errors += map(outcome.error, self._sent.pop(outcome))
        for error in filter(None, errors):
            raise error

    def settle(self) -> None:
        """Wait until everything sent is stored, or refused; `flush` tells of errors."""
        for outcome in list(self._sent):
            if not outcome.done:
                outcome.wait(None)

    _end = _flush


@also_in_camel_case
class BatchToPartition:
    """Messages that are stored all or not at all, by `commit`."""

    def __init__(self, producer: Producer, name: str) -> None:
        self._producer = producer
        self._name, self._partition = partition_of(name)
        self._messages: list[BytesMessage] = []

    def send(self, message: BytesMessage) -> None:
        """Add a message; InvalidRequestError for one to another topic or queue."""
        target = target_of(message)
        others = {target_of(earlier) for earlier in self._messages[:1]} - {target}
        if others or self._name != (queue_of_log(target) or target):
            raise InvalidRequestError(f"the batch is for {self._name}, the message for {target}")
        self._messages.append(message)

    def commit(self) -> None:
        """Store them and return when they are on disk; an error when none is stored."""
        messages, self._messages = self._messages, []
        if messages:
            self._producer.store_whole(messages, self._partition)

    def rollback(self) -> None:
        """Forget them."""
        self._messages = []

    close = rollback


def target_of(message: BytesMessage) -> str:
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
