"""The producer: it sends single messages, or transactions of one topic each."""

from __future__ import annotations

import math

from kmq_spark.client.consuming.shared_reader import single_partition
from kmq_spark.client.handles.arguments import checked_flag
from kmq_spark.client.handles.resource import Resource
from kmq_spark.client.sending.producer import Producer
from kmq_spark.client.sending.transaction import Transaction
from kmq_spark.client.store import Store
from kmq_spark.errors import ClosedError, IllegalStateError, QueueFullError, TransactionAbortedError
from kmq_spark.v2.message import KmqMessage, encoded
from kmq_storage.log.state.store_state import StoreState


class KmqProducer(Resource):
    """Sends to any topics, from any thread; NotFoundError for an unknown topic.

    A transaction delays no other producer: messages of others come before or after all of its own.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._auto_commit = True
        self._closed = False
        #: One producer for each topic: all its sends take part in its transaction.
        self._producers: dict[str, Producer] = {}
        #: Open transactions, and lost ones until they are aborted.
        self._transactions: dict[str, Transaction] = {}
        #: The topics whose transaction was refused a message, as they were full.
        self._full: set[str] = set()

    @property
    def auto_commit(self) -> bool:
        """Whether `send` stores each message by itself (the default).

        Set it to False before a transaction; `send` then does what `send_without_lock` does.
        """
        return self._auto_commit

    @auto_commit.setter
    def auto_commit(self, value: bool) -> None:
        self._auto_commit = checked_flag("auto_commit", value)

    def send(self, topic: str, message: KmqMessage) -> bool:
        """Store a message, so that it is durable and seen by all; False when the topic is full.

        With `auto_commit=False` it is `send_without_lock`.
        """
        if not self.auto_commit:
            return self.send_without_lock(topic, message)
        producer = self._producer(topic)
        value, headers = encoded(message)
        if self._has_open(topic):
            raise IllegalStateError(
                f"a transaction of Topic[{topic}] is open: send_without_lock takes part in it"
            )
        try:
            producer.send(topic, value, headers=headers).result()
        except QueueFullError:
            return False
        return True

    def send_without_lock(self, topic: str, message: KmqMessage) -> bool:
        """Send a message in the transaction of its topic; False when the topic is full.

        After False the transaction can only be aborted. TransactionAbortedError when it was lost in
        another way.
        """
        transaction = self._begun(topic)
        value, headers = encoded(message)
        if transaction.is_open and self._is_full(topic):
            transaction.abort()
            self._full.add(topic)
        if topic in self._full:
            return False
        self._store.log.check_open()
        if transaction.is_lost:
            raise _lost(topic)
        transaction.send(topic, value, headers=headers)
        return True

    def begin_transaction(self, topic: str) -> None:
        """Begin a transaction of a topic; needs `auto_commit=False`.

        IllegalStateError when this producer has an open one of that topic.
        """
        producer = self._producer(topic)
        if self.auto_commit:
            raise IllegalStateError(
                "auto_commit is True: each message is stored by itself; set it to False before "
                f"a transaction of Topic[{topic}] begins"
            )
        if self._has_open(topic):
            raise IllegalStateError(f"a transaction of Topic[{topic}] is open already")
        self._transactions[topic] = producer.begin_transaction()
        self._full.discard(topic)

    def commit_transaction(self, topic: str) -> None:
        """Store everything sent in the transaction: seen at once, with no other message in between.

        TransactionAbortedError when nothing of it is stored, for example because the topic was
        full.
        """
        if self._begun(topic).is_lost:
            raise _lost(topic)
        self._producers[topic].commit_transaction()
        del self._transactions[topic]

    def abort_transaction(self, topic: str) -> None:
        """Store nothing of the transaction; also ends one whose commit failed."""
        if not self._begun(topic).is_lost:
            self._producers[topic].abort_transaction()
        del self._transactions[topic]

    def _has_open(self, topic: str) -> bool:
        return topic in self._transactions and self._transactions[topic].is_open

    def _begun(self, topic: str) -> Transaction:
        self._check_open()
        if topic not in self._transactions:
            single_partition(self._store.log.refresh(), topic)
            raise IllegalStateError(f"no transaction of Topic[{topic}] is open: begin one first")
        return self._transactions[topic]

    def _producer(self, topic: str) -> Producer:
        single_partition(self._store.log.refresh(), topic)
        self._check_open()
        if topic not in self._producers:
            # A second one, made at the same time, is closed by the store.
            self._producers.setdefault(topic, self._store.producer(linger=0.0))
        return self._producers[topic]

    def _is_full(self, topic: str) -> bool:
        """What seems full is looked at again, as others may have made room."""
        log = self._store.log
        return self._is_full_in(log.state, topic) and self._is_full_in(log.refresh(), topic)

    def _is_full_in(self, state: StoreState, topic: str) -> bool:
        found = state.topic(topic)
        return found.held + len(self._producers[topic]) >= (found.settings.capacity or math.inf)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the producer is closed")

    def close(self) -> None:
        """Close the producer, and abort open transactions; a second call does nothing."""
        self._closed = True
        for producer in list(self._producers.values()):
            producer.close()


def _lost(topic: str) -> TransactionAbortedError:
    return TransactionAbortedError(
        f"nothing of the transaction of Topic[{topic}] is stored: a message was refused, or its "
        "commit; abort it, and begin another one"
    )
