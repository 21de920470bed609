"""Iterators over one partition, forwards and backwards."""

from __future__ import annotations

from kmq_spark.client.arguments import checked_offset
from kmq_spark.client.store import Store
from kmq_spark.errors import InvalidRequestError, NotFoundError
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.spelling import also_in_camel_case
from kmq_spark.openmessaging.stored import Stored, messages_of, partition_of
from kmq_storage.groups import committed_offsets, set_group_offsets
from kmq_storage.model import to_datetime
from kmq_storage.names import queue_log

#: Where iterators are that were told to persist it.
_GROUP = "oms.partitions"
_ROWS = 512
#: The instants that a datetime has, UTC ms.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999


@also_in_camel_case
class PartitionConsumer(StoreUser):
    """Reads partitions without taking part in any queue."""

    def partition_iterator(self, name: str) -> PartitionIterator:
        """The messages of a topic or queue (`name`), or of one partition (`topic:partition`)."""
        self._check_open()
        name, number = partition_of(name)
        state = self._store.log.refresh()
        for found in (name, queue_log(name)):
            if state.find_topic(found) is not None:
                return PartitionIterator(self._store, found, number or 0)
        raise NotFoundError(f"Topic[{name}] doesn't exist, nor does Queue[{name}].", name=name)


@also_in_camel_case
class PartitionIterator:
    """A place between two messages, at first where `persist` was called last."""

    def __init__(self, store: Store, topic: str, partition: int) -> None:
        self._store, self._topic, self._partition = store, topic, partition
        stored = committed_offsets(store.log.refresh(), _GROUP)
        self._at = self._inside(stored.get(topic, {}).get(partition, 0))
        self._reader = store.consumer()
        self._reader.assign({topic: [partition]})
        self._messages: list[Stored] = []

    def _bounds(self) -> tuple[int, int]:
        part = self._store.log.refresh().topic(self._topic).partition(self._partition)
        return part.start, part.end

    def _inside(self, offset: int) -> int:
        start, end = self._bounds()
        return min(max(offset, start), end)

    def current_offset(self) -> int:
        """The offset of the message that `next` gives."""
        return self._at

    def first_offset(self) -> int:
        """The offset of the first message."""
        return self._bounds()[0]

    def last_offset(self) -> int:
        """The offset of the last message; that of the first one to come where there is none."""
        start, end = self._bounds()
        return max(start, end - 1)

    def seek_by_offset(self, offset: int, persistent: bool = False) -> None:
        """Go to an offset; to the first or last message for one that lies outside."""
        self._at = min(max(checked_offset(offset), self.first_offset()), self.last_offset())
        if persistent:
            self.persist()

    def seek_by_time(self, timestamp: int, persistent: bool = False) -> None:
        """Go to the first message stored at or after an instant (UTC ms), or to the last."""
        if type(timestamp) is not int:
            raise InvalidRequestError(f"timestamp must be milliseconds, not {timestamp!r}")
        when = to_datetime(min(max(timestamp, _FIRST_TIME), _LAST_TIME) * 1000)
        found = self._store.offsets_for_time(self._topic, when)[self._partition]
        self.seek_by_offset(self.last_offset() if found is None else found, persistent)

    def persist(self) -> None:
        """Have the next iterator over this partition begin here."""
        place = {self._topic: {self._partition: self._at}}
        set_group_offsets(self._store.log, _GROUP, place)

    def has_next(self) -> bool:
        """Whether there is a message here."""
        return self._at < self._bounds()[1]

    def next(self) -> BytesMessage | None:
        """The message here, and go behind it; None at the end."""
        return self._step(self._at, 1) if self.has_next() else None

    def has_previous(self) -> bool:
        """Whether there is a message before."""
        return self._at > self._bounds()[0]

    def previous(self) -> BytesMessage | None:
        """The message before, and go to it; None at the beginning."""
        return self._step(self._at - 1, 0) if self.has_previous() else None

    def __iter__(self) -> PartitionIterator:
        return self

    def __next__(self) -> BytesMessage:
        message = self.next()
        if message is None:
            raise StopIteration
        return message

    def _step(self, offset: int, after: int) -> BytesMessage | None:
        first = self._messages[0][2] if self._messages else offset + 1
        if not first <= offset < first + len(self._messages):
            self._read(offset if after else max(0, offset - _ROWS + 1))
        stored = self._messages[offset - self._messages[0][2]]
        self._at = offset + after
        return BytesMessage(stored[3], None, None, stored, self._store.url)

    def _read(self, first: int) -> None:
        self._reader.seek(self._topic, self._partition, max(first, self.first_offset()))
        self._messages = messages_of(self._reader.consume_arrow(_ROWS, 0.0))
