"""Topics as arrays that grow at their end, consumers with an id, and the broker that has them."""

from __future__ import annotations

from contextlib import suppress

from kmq_spark.client.consuming.shared_reader import SharedReader
from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.arguments import checked_count, checked_milliseconds
from kmq_spark.client.handles.resource import Resource, StaysHere
from kmq_spark.client.store import Store
from kmq_spark.errors import (
    AlreadyExistsError,
    ClosedError,
    IllegalStateError,
    InvalidRequestError,
    NotFoundError,
)
from kmq_spark.v2.message import KmqMessage, decoded
from kmq_spark.v2.producer import KmqProducer
from kmq_storage.groups.administration import delete_group
from kmq_storage.objects.fork import generation


class KmqBroker(StaysHere):
    """The topics of a store, shared with every other program that opens the store."""

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):
            raise InvalidRequestError(
                f"a broker needs an open store, as kmq_spark.open gives one, not {store!r}",
                option="store",
            )
        self._store = store

    def create_topic(self, topic: str, capacity: int = 10_000) -> Kmq:
        """Create a topic that holds `capacity` messages; one that exists is kept as it is."""
        checked_count("capacity", capacity)
        if self.find_kmq(topic) is None:
            with suppress(AlreadyExistsError):  # another process was faster
                self._store.create_topic(topic, capacity=capacity, exist_ok=False)
        return Kmq(self._store, topic)

    def find_kmq(self, topic: str) -> Kmq | None:
        """Return the topic of this name, or None.

        InvalidRequestError for a topic with several partitions.
        """
        known = any(each.name == topic for each in self._store.log.refresh().user_topics())
        return Kmq(self._store, topic) if known else None

    def create_producer(self) -> KmqProducer:
        """Return a producer for any topics."""
        return KmqProducer(self._store)

    def create_consumer(self) -> KmqConsumer:
        """Return a consumer, which then subscribes to a topic."""
        return KmqConsumer(self._store)


class Kmq(StaysHere):
    """One topic; any threads and processes may use it. Its consumers are groups of the store."""

    def __init__(self, store: Store, topic: str) -> None:
        self.topic = topic
        self._reader = SharedReader(store.log, topic)
        store._keep_up()

    @property
    def current_write_index(self) -> int:
        """The index of the next message: one more than `current_can_read_max_index`."""
        return self._reader.end()

    @property
    def current_can_read_max_index(self) -> int:
        """The index of the last message; -1 when there never was one."""
        return self.current_write_index - 1

    def register_consumer(self, id: str) -> None:  # noqa: A002 - the name users type
        """Make a consumer that begins at the first message; one that exists stays where it is."""
        self._reader.register(id)

    def poll(
        self,
        id: str,  # noqa: A002 - the name users type
        timeout_ms: float | None = None,
    ) -> KmqMessage | None:
        """Return the next message of a consumer, which acknowledges it.

        None when none comes within `timeout_ms` milliseconds (by default without waiting), and for
        an unknown id. IllegalStateError while the id is that of a group with live members.
        """
        seconds = 0.0 if timeout_ms is None else checked_milliseconds("timeout_ms", timeout_ms)
        record = self._reader.next_record(id, seconds)
        return None if record is None else decoded(record)


class KmqConsumer(Resource):
    """Gets every message of the topic that it subscribed to, from the first one on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kmq: Kmq | None = None
        self._closed = False
        #: A UUID, made by `subscribe`.
        self.consumer_id = ""
        #: The fork generation of the process that made it, and that forgets it.
        self._made_in = generation()

    def subscribe(self, topic: str) -> None:
        """Read a topic from its beginning, under a new id; NotFoundError for an unknown topic."""
        self._check_open()
        kmq = Kmq(self._store, topic)
        self._forget()
        self.consumer_id = str(self._store.log.environment.new_uuid())
        self._made_in = generation()
        kmq.register_consumer(self.consumer_id)
        self._kmq = kmq

    def poll(self, timeout_ms: float | None = None) -> KmqMessage | None:
        """Return the next message, or None when none comes within `timeout_ms` milliseconds."""
        self._check_open()
        if self._kmq is None:
            raise IllegalStateError("this consumer reads nothing yet: subscribe to a topic first")
        return self._kmq.poll(self.consumer_id, timeout_ms)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")

    @closes_apart
    def close(self) -> None:
        """Close the consumer, and delete its id from the store; from any thread.

        A second call does nothing. In a forked child, the id stays its parent's.
        """
        if not self._closed:
            self._closed = True
            self._forget()

    def _forget(self) -> None:
        if self._kmq is not None and self._made_in == generation():
            # A closed store keeps the id; or it was deleted already.
            with suppress(ClosedError, NotFoundError):
                delete_group(self._store.log, self.consumer_id)
        self._kmq = None
