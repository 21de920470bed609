"""The pull consumer of a queue: its topics and what was sent to it, from where it stopped."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, repeat
from typing import Any

import pyarrow as pa

from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.columns import StoredRows
from kmq_spark.openmessaging.key_value import KeyValue
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.spelling import also_in_camel_case
from kmq_spark.openmessaging.window import DECIDING, delivery_window, priority
from kmq_storage.groups import committed_offsets, offset_entries
from kmq_storage.log.binding import Unit
from kmq_storage.names import queue_log

Place = tuple[str, int]
#: Messages whose position is stored together, and those of one place that are decoded together.
_TOGETHER, _DECODED, _REMEMBERED = 4_096, 512, 1_024


@also_in_camel_case
class PullConsumer(StoreUser):
    """Gets each message of a queue's topics, and each that was sent to the queue, in order.

    The position of the queue is stored: the next consumer goes on there. One thread at a time,
    and one consumer per queue at a time: two would get the same messages.
    """

    def __init__(self, key_value: KeyValue | Mapping[str, Any]) -> None:
        super().__init__(key_value)
        self._queue: str | None = None
        self._reader = self._store.consumer()
        self._messages: Iterator[BytesMessage] = iter(())
        self._last: BytesMessage | None = None
        #: Where what was handed out last is, until somebody acknowledges.
        self._since: deque[tuple[Place, list[int]]] = deque(maxlen=_REMEMBERED)
        self._acknowledges = False
        #: Per place the next offset, and what lies below it and is not done.
        self._next: dict[Place, int] = {}
        self._open: defaultdict[Place, dict[int, None]] = defaultdict(dict)
        self._stored: dict[Place, int] = {}
        #: What may be handed out later: from when on (UTC ms), a number, the message.
        self._later: list[tuple[float, int, BytesMessage]] = []
        self._number = count()

    def attach_queue(self, queue: str, topics: Iterable[str] | str = ()) -> None:
        """Read a queue, which is bound to these topics from now on, besides others of before.

        Queue and topics are made unless they are there. InvalidRequestError for a second queue.
        """
        self._check_open()
        if self._queue not in (None, queue):
            raise InvalidRequestError(
                f"this consumer reads queue {self._queue}: another queue needs another consumer"
            )
        self._bind(queue, [topics] if isinstance(topics, str) else list(topics))
        self._queue = queue
        self._follow(queue)

    def _bind(self, queue: str, topics: list[str]) -> None:
        log = self._store.log
        state = log.refresh()
        for topic in topics:
            if state.find_topic(topic) is None or ":" in topic:
                self._store.create_topic(topic)
        if state.queues.find(queue) is None:
            self._store.create_queue(queue)
        bound = log.refresh().queues.named(queue).bindings
        missing = [topic for topic in topics if log.state.topic(topic).id not in bound]
        if missing:
            self._store.bind_queue(queue, missing)

    def _follow(self, queue: str) -> None:
        """Read everything that the queue has, each place from where it is, or was stored."""
        at, log = self._reader.position(), self._store.log
        state = log.refresh()
        bound = state.queues.named(queue).bindings
        topics = [t for t in state.user_topics() if t.id in bound] + [state.topic(queue_log(queue))]
        self._reader.subscribe([topic.name for topic in topics])
        stored = committed_offsets(log.written_state(), _group(queue))  # not synced, maybe
        for topic in topics:
            for number, part in enumerate(topic.parts):
                known = at.get(topic.name, stored.get(topic.name, {})).get(number, part.start)
                offset = min(max(known, part.start), part.end)
                self._reader.seek(topic.name, number, offset)
                self._stored.setdefault((topic.name, number), offset)
                self._next.setdefault((topic.name, number), offset)

    def poll(self, properties: KeyValue | None = None) -> BytesMessage | None:
        """The next message; None when everything was handed out, or nothing is attached.

        `properties` may have OPERATION_TIMEOUT: milliseconds to wait for one.
        """
        message = next(self._messages, None)
        if message is None:
            message = self._come(properties.get_int("OPERATION_TIMEOUT") if properties else 0)
        if message is not None:
            self._last = message
        return message

    def _come(self, milliseconds: int) -> BytesMessage | None:
        """The next of what is read now, waiting for some."""
        self._check_open()
        if self._queue is None:
            return None
        now = self._store.log.environment.monotonic
        deadline = now() + milliseconds / 1000
        while True:
            self._store_position()
            if self._later and self._later[0][0] <= self._now():
                return self._due(heapq.heappop(self._later)[2])
            table = self._reader.consume_arrow(_TOGETHER, 0.0)
            if table is None:
                for producer in list(self._shared.producers):
                    producer.settle()  # what this process sent is seen here
                table = self._reader.consume_arrow(_TOGETHER, self._pause(deadline - now()))
            self._messages = self._decoded(table)
            message = next(self._messages, None)
            if message is not None or (table is None and now() >= deadline):
                return message

    def _now(self) -> float:
        return self._store.log.environment.now_us() / 1000

    def _pause(self, seconds: float) -> float:
        """How long to wait at most: until what is kept back is due."""
        due = (self._later[0][0] - self._now()) / 1000 if self._later else seconds
        return max(0.0, min(seconds, due))

    def _decoded(self, table: pa.Table | None) -> Iterator[BytesMessage]:
        for batch in table.to_batches(max_chunksize=_DECODED) if table is not None else ():
            rows = StoredRows(batch, self._store.url)
            end = rows.offsets[-1] + 1
            unknown: repeat[Any] = repeat(None)
            messages = map(
                BytesMessage, rows.bodies, unknown, unknown, repeat(rows), range(len(rows))
            )
            if self._acknowledges or rows.header_names & DECIDING:
                self._open[rows.place].update(dict.fromkeys(rows.offsets))
                self._next[rows.place] = end
                for message in self._in_turn(messages):
                    yield self._due(message)
            else:
                self._since.append((rows.place, rows.offsets))
                yield from messages
                self._next[rows.place] = end

    def _in_turn(self, messages: Iterable[BytesMessage]) -> list[BytesMessage]:
        """The more important first, without those that came too late, or are too early."""
        now, found = self._now(), []
        for message in messages:
            start, stop = delivery_window(message.header_values())
            if stop < now:
                self._open[_place(message)].pop(_offset(message))
            elif start > now:
                heapq.heappush(self._later, (start, next(self._number), message))
            else:
                found.append(message)
        return sorted(found, key=lambda each: -priority(each.header_values()))

    def _due(self, message: BytesMessage) -> BytesMessage:
        """A message that is handed out now, and done unless it is to be acknowledged."""
        if not self._acknowledges:
            self._open[_place(message)].pop(_offset(message), None)
        return message

    def ack(self, message_id: str | None) -> None:
        """This message is done, which survives the end of the process.

        From the first call on, the next consumer gets everything again from the first message
        that was not acknowledged, some thousands before this call included. InvalidRequestError
        for the id of no message of this queue.
        """
        self._check_open()
        topic, _, number = str(message_id).rpartition(":")[0].rpartition(":")
        offset = str(message_id).rpartition(":")[2]
        place = (topic, int(number) if number.isdecimal() else -1)
        if place not in self._next or not offset.isdecimal():
            raise InvalidRequestError(f"no message of queue {self._queue} has id {message_id!r}")
        if not self._acknowledges:
            self._acknowledges = True
            for seen, offsets in self._since:
                self._open[seen].update(dict.fromkeys(offsets))
                self._next[seen] = offsets[-1] + 1
            self._since.clear()
        self._open[place].pop(int(offset), None)
        self._store_position()

    def _store_position(self) -> None:
        """Store where the queue goes on, if that moved."""
        last = self._last
        if last is not None and not self._acknowledges:
            place = _place(last)
            self._next[place] = max(self._next[place], _offset(last) + 1)
        log = self._store.log
        state = log.state
        moved: dict[str, dict[int, int]] = {}
        for place, following in self._next.items():
            at = next(iter(self._open[place]), following) if self._open else following
            if at != self._stored.get(place) and state.find_topic(place[0]) is not None:
                moved.setdefault(place[0], {})[place[1]] = self._stored[place] = at
        if moved and self._queue is not None:
            entries = offset_entries(log.refresh(), _group(self._queue), moved)
            log.commit([Unit(entries)], durable=False)

    def _end(self) -> None:
        self._store_position()
        self._reader.close()


def _group(queue: str) -> str:
    """The group whose offsets are the position of a queue."""
    return f"oms.{queue}"


def _place(message: BytesMessage) -> Place:
    assert isinstance(message.rows, StoredRows), "it was received"
    return message.rows.place


def _offset(message: BytesMessage) -> int:
    assert isinstance(message.rows, StoredRows), "it was received"
    return message.rows.offsets[message.row]
