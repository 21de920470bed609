"""Iterators over one partition, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator

from kmq_spark.client.handles.arguments import checked_offset
from kmq_spark.client.store import Store
from kmq_spark.errors import CorruptionError, DataLossError, InvalidRequestError
from kmq_spark.openmessaging import stored
from kmq_spark.openmessaging.access import StoreUser, no_bodies
from kmq_spark.openmessaging.key_value import BothSpellings
from kmq_spark.openmessaging.message import BytesMessage, partition_of
from kmq_storage.format.plain_columns import numbers_of
from kmq_storage.groups.administration import committed_offsets, set_group_offsets
from kmq_storage.model import to_datetime
from kmq_storage.names import queue_log

#: The group of persisted iterator positions; no queue stores its position in it.
_GROUP = "oms-partitions"
_ROWS = 512
#: The first and last instant of a datetime, UTC ms.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999


class PartitionConsumer(StoreUser):
    """Reads partitions without taking part in any queue."""

    def partition_iterator(self, name: str) -> PartitionIterator:
        """Return an iterator over a topic, a queue, or one partition (`topic:partition`)."""
        self._check_open()
        name, number = partition_of(name)
        state = self._log.refresh()
        for found in (name, queue_log(name)):
            if state.find_topic(found) is not None:
                return PartitionIterator(self._store, found, number or 0)
        raise state.missing("Topic", name)


class PartitionIterator(BothSpellings, Iterator[BytesMessage]):
    """A position between two messages; it begins where `persist` was called last."""

    def __init__(self, store: Store, topic: str, partition: int) -> None:
        self._store, self._topic, self._partition = store, topic, partition
        self._shared_headers = stored.shared_headers(store)
        #: The id of the topic: one that is made again under its name is another one.
        self._topic_id = b""
        self._bounds()

    def _bounds(self) -> tuple[int, int]:
        """Return the first offset and the end; in a topic that was made anew, begin anew first."""
        state = self._store.log.refresh()
        topic = state.topic(self._topic)
        part = topic.partition(self._partition)
        if topic.settings.schemas:
            raise InvalidRequestError(no_bodies(topic.name), topic=topic.name)
        if topic.id != self._topic_id:
            self._topic_id = topic.id
            known = committed_offsets(state, _GROUP)
            self._at = min(known.get(topic.name, {}).get(self._partition, 0), part.end)
            #: The offsets that were read last, and their messages.
            self._seen, self._messages = range(0), dict[int, stored.Stored]()
        return part.first, part.end

    def current_offset(self) -> int:
        """Return the offset of the message that `next` gives."""
        start, _ = self._bounds()
        return max(self._at, start)  # skip what was trimmed

    def first_offset(self) -> int:
        """Return the offset of the first message."""
        return self._bounds()[0]

    def last_offset(self) -> int:
        """Return the offset of the last message; without any, that of the first one to come."""
        start, end = self._bounds()
        return max(start, end - 1)

    def seek_by_offset(self, offset: int, persistent: bool = False) -> None:
        """Go to an offset; for one outside, to the first or last message."""
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
        """Store the position: the next iterator over this partition begins there."""
        place = {self._topic: {self._partition: self.current_offset()}}
        set_group_offsets(self._store.log, _GROUP, place)

    def has_next(self) -> bool:
        """Whether there is a message at this position."""
        start, end = self._bounds()
        return max(self._at, start) < end

    def next(self) -> BytesMessage | None:
        """Return the message at this position, and go behind it; None at the end."""
        found = None
        while found is None and self.has_next():
            at = self.current_offset()
            found = self._message(at, at)
            self._at = at + 1  # it may be trimmed meanwhile, but what is behind it isn't
        return found

    def has_previous(self) -> bool:
        """Whether there is a message before this position."""
        start, _ = self._bounds()
        return self._at > start

    def previous(self) -> BytesMessage | None:
        """Return the message before this position, and go to it; None at the beginning."""
        found = None
        while found is None and self.has_previous():
            found = self._message(self._at - 1, self._at - _ROWS)
            self._at -= 1
        return found

    def __next__(self) -> BytesMessage:
        if (message := self.next()) is None:
            raise StopIteration
        return message

    def _message(self, offset: int, first: int) -> BytesMessage | None:
        """The message at an offset, unless it was compacted away; from `first` on some are read."""
        if offset not in self._seen:
            start, end = self._bounds()
            try:
                self._read(range(max(first, start), min(first + _ROWS, end)))
            except (CorruptionError, DataLossError):  # perhaps of another one
                self._read(range(offset, offset + 1))
        found = self._messages.get(offset)
        return None if found is None else stored.message_of(found)

    def _read(self, offsets: range) -> None:
        number = self._partition
        here, behind = {number: offsets.start}, {number: offsets.stop}
        batches = self._store.read(self._topic, partitions=[number], start=here, end=behind)
        read = dict[int, stored.Stored]()
        for batch in batches:
            found = numbers_of(batch.column("offset")).tolist()
            of = (self._topic, number), found, batch, stored.extras_in(batch)
            read |= zip(found, stored.messages_of(*of, self._shared_headers), strict=True)
        self._messages, self._seen = read, offsets
