"""The pull consumer of a queue: its topics and what was sent to it, from where it stopped."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging.access import StoreUser
from kmq_spark.openmessaging.headers import DECIDING, delivery_window, priority
from kmq_spark.openmessaging.key_value import KeyValue
from kmq_spark.openmessaging.message import BytesMessage
from kmq_spark.openmessaging.spelling import also_in_camel_case
from kmq_spark.openmessaging.stored import Stored, headers_of, messages_of
from kmq_storage.groups import committed_offsets, offset_entries
from kmq_storage.log.binding import Unit
from kmq_storage.names import queue_log

#: A topic, or a queue's own log, and the partition.
Place = tuple[str, int]
#: Messages whose position is stored together; and how many of a place the first `ack` takes back.
_TOGETHER, _REMEMBERED = 4_096, 524_288


@also_in_camel_case
class PullConsumer(StoreUser):
    """Gets each message of a queue's topics, and each that was sent to the queue, in order.

    The position of the queue is stored: the next consumer goes on there. One thread at a time,
    and one consumer per queue at a time: two would get the same messages.
    """

    def __init__(self, key_value: KeyValue | Mapping[str, Any]) -> None:
        super().__init__(key_value)
        self._queue: str | None = None
        self._reader, self._host = self._store.consumer(), self._store.url
        #: What is handed out next, from the end.
        self._ready: list[Stored] = []
        #: What may be handed out later: from when on (UTC ms), and the message.
        self._later: list[tuple[float, Stored]] = []
        #: Whether some may be too late by the time that they are next.
        self._may_be_late = False
        self._acknowledges = False
        #: Per place how far it was read, what of that is not acknowledged, and what is stored.
        self._read: dict[Place, int] = {}
        self._open: defaultdict[Place, dict[int, None]] = defaultdict(dict)
        self._stored: dict[Place, int] = {}

    def attach_queue(self, queue: str, topics: Iterable[str] | str = ()) -> None:
        """Read a queue, which is bound to these topics from now on, besides others of before.

        Queue and topics are made unless they are there. InvalidRequestError for a second queue.
        """
        self._check_open()
        if self._queue not in (None, queue):
            raise InvalidRequestError(
                f"this consumer reads queue {self._queue}: another queue needs another consumer"
            )
        if not isinstance(topics, Iterable):
            raise InvalidRequestError(f"topics must be names, not {topics!r}")
        self._bind(queue, [topics] if isinstance(topics, str) else list(topics))
        self._queue = queue
        self._follow(queue)

    def _bind(self, queue: str, topics: list[str]) -> None:
        log = self._store.log
        for topic in topics:
            if log.refresh().find_topic(topic) is None or ":" in topic:
                self._store.create_topic(topic)
        if log.refresh().queues.find(queue) is None:
            self._store.create_queue(queue)
        bound = log.refresh().queues.named(queue).bindings
        missing = [topic for topic in topics if log.state.topic(topic).id not in bound]
        if missing:
            self._store.bind_queue(queue, missing)

    def _follow(self, queue: str) -> None:
        """Read everything that the queue has, each new place from where it was stored."""
        log = self._store.log
        state = log.refresh()
        bound = state.queues.named(queue).bindings
        topics = [t for t in state.user_topics() if t.id in bound] + [state.topic(queue_log(queue))]
        self._reader.subscribe([topic.name for topic in topics])
        stored = committed_offsets(log.written_state(), _group(queue))  # not synced, maybe
        for topic in topics:
            for number, part in enumerate(topic.parts):
                known = stored.get(topic.name, {}).get(number, part.start)
                at = min(max(self._read.get((topic.name, number), known), part.start), part.end)
                self._reader.seek(topic.name, number, at)
                self._read[topic.name, number] = at
                self._stored.setdefault((topic.name, number), at)

    def poll(self, properties: KeyValue | None = None) -> BytesMessage | None:
        """The next message; None when everything was handed out, or nothing is attached.

        `properties` may have OPERATION_TIMEOUT: milliseconds to wait for one.
        """
        while self._may_be_late and self._ready and self._is_late(self._ready[-1]):
            self._ready.pop()
        if not self._ready:
            self._check_open()
            self._wait(properties.get_int("OPERATION_TIMEOUT") if properties else 0)
            if not self._ready:
                return None
        stored = self._ready.pop()
        return BytesMessage(stored[3], None, None, stored, self._host)

    def _wait(self, milliseconds: int) -> None:
        """Have something ready, if there is something within this time."""
        now = self._store.log.environment.monotonic
        deadline = now() + milliseconds / 1000
        while self._queue is not None:
            self._store_positions()
            found = self._read_next(0.0)
            if not found:
                for user in list(self._shared.users):
                    user.settle()  # what this process sent is seen here
                found = self._read_next(self._pause(deadline - now()))
            self._take(found)
            if self._ready or (not found and now() >= deadline):
                return

    def _read_next(self, timeout: float) -> list[Stored]:
        return messages_of(self._reader.consume_arrow(_TOGETHER, timeout))

    def _pause(self, seconds: float) -> float:
        """How long to wait at most: until what is kept back is due."""
        due = (self._later[0][0] - self._now()) / 1000 if self._later else seconds
        return max(0.0, min(seconds, due))

    def _now(self) -> float:
        return self._store.log.environment.now_us() / 1000

    def _take(self, found: list[Stored]) -> None:
        """Have ready what was read and is due, without what came too late."""
        for place, messages in groupby(found, key=itemgetter(0, 1)):
            offsets = [message[2] for message in messages]
            self._read[place] = offsets[-1] + 1
            self._open[place].update(dict.fromkeys(offsets))
        if any(name in DECIDING for message in found for name, _ in message[4]):
            found = self._due(found)
        now = self._now()
        while self._later and self._later[0][0] <= now:
            found.append(heapq.heappop(self._later)[1])
        if self._may_be_late:
            found = [each for each in found if not self._is_late(each)]
        self._ready = found[::-1]

    def _is_late(self, message: Stored) -> bool:
        """Whether nobody is to get a message any more; then it is done."""
        late = delivery_window(headers_of(message, self._host))[1] < self._now()
        if late:
            self._open[message[:2]].pop(message[2], None)
        return late

    def _due(self, found: list[Stored]) -> list[Stored]:
        """The more important first, without those that are too early."""
        now, due = self._now(), []
        for message in found:
            headers = headers_of(message, self._host)
            start, stop = delivery_window(headers)
            self._may_be_late |= stop < math.inf
            if start > now:
                heapq.heappush(self._later, (start, message))
            else:
                due.append((-priority(headers), message))
        return [message for _, message in sorted(due, key=lambda each: each[0])]

    def ack(self, message_id: str | None) -> None:
        """This message is done, which survives the end of the process.

        From the first call on, the next consumer gets everything again from the first message
        that was not acknowledged, hundreds of thousands before this call included.
        InvalidRequestError for the id of no message of this queue.
        """
        self._check_open()
        rest, _, offset = str(message_id).rpartition(":")
        topic, _, number = rest.rpartition(":")
        place = (topic, int(number) if number.isdecimal() else -1)
        if place not in self._read or not offset.isdecimal():
            raise InvalidRequestError(f"no message of queue {self._queue} has id {message_id!r}")
        self._acknowledges = True
        self._open[place].pop(int(offset), None)
        self._store_positions()

    def _positions(self) -> dict[Place, int]:
        """Per place the first message that is not done: acknowledged, or handed out."""
        found = self._read.copy()
        if self._acknowledges:
            return {place: next(iter(self._open[place]), end) for place, end in found.items()}
        for topic, number, offset, *_ in chain(self._ready, (later for _, later in self._later)):
            found[topic, number] = min(found[topic, number], offset)
        for offsets in self._open.values():
            if len(offsets) > _REMEMBERED:
                offsets.clear()
        return found

    def _store_positions(self) -> None:
        """Store where the queue goes on, if that moved."""
        log, moved = self._store.log, defaultdict[str, dict[int, int]](dict)
        for (topic, number), at in self._positions().items():
            if at != self._stored.get((topic, number)) and log.state.find_topic(topic) is not None:
                moved[topic][number] = self._stored[topic, number] = at
        if moved and self._queue is not None:
            entries = offset_entries(log.refresh(), _group(self._queue), moved)
            log.commit([Unit(entries)], durable=False)

    def _end(self) -> None:
        self._store_positions()
        self._reader.close()


def _group(queue: str) -> str:
    """The group whose offsets are the position of a queue."""
    return f"oms.{queue}"
