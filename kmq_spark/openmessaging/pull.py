"""The pull consumer of a queue: it reads the queue's topics, and what was sent to the queue."""

from __future__ import annotations

import heapq
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice, zip_longest
from operator import itemgetter

import numpy as np

from kmq_spark.client.consuming.subscription import Partitions
from kmq_spark.client.consuming.taking import Slices
from kmq_spark.client.handles.arguments import checked_names
from kmq_spark.errors import DataLossError, IllegalStateError, InvalidRequestError
from kmq_spark.openmessaging import stored
from kmq_spark.openmessaging.access import StoreUser, no_bodies
from kmq_spark.openmessaging.key_value import KeyValue
from kmq_spark.openmessaging.message import DECIDING, BytesMessage, delivery_of, place_of
from kmq_spark.openmessaging.progress import Progress
from kmq_storage.format.entries import Entry, GroupOffsetsEntry
from kmq_storage.format.records import column_of
from kmq_storage.groups.administration import committed_offsets
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.reading.scan import Slice
from kmq_storage.log.state.queues.topics import Binding
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.names import check_name, positions_group, queue_log
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.queues.filters import let_in

_LOGGER = logging.getLogger(__name__)
#: A topic, or a queue's own log, and the partition.
Place = tuple[str, int]
#: How many messages share one commit of positions, and how many of a place the first `ack` reopens
#: at least: neighbours count as one.
_TOGETHER, _REMEMBERED = 4_096, 262_144
#: The most bytes of these messages: many fit as they are mostly small, and few large ones will do.
_BYTES = 32 << 20
#: Of a place that has more, so many messages at least are read in a turn: fewer are slow.
_LEAST = 256
#: Seconds after which one that waits looks at the clock, and at what its queue is bound to.
_LOOK_AGAIN = 1.0


def _names_of(state: StoreState, topic_ids: Iterable[bytes]) -> set[str]:
    """The names of those of these topics that exist."""
    return {topic.name for topic in map(state.topic_by_id, topic_ids) if topic is not None}


class PullConsumer(StoreUser):
    """Gets each message of a queue's topics, and each that was sent to the queue, in order.

    The queue's position is stored, and the next consumer goes on there. Use it from one thread at a
    time, and have one consumer per queue at a time: two would get the same messages.
    """

    def _begin(self, key_value: KeyValue) -> None:
        #: The queue that it reads; none, before one is attached.
        self.queue = ""
        self._reader = self._store.consumer()
        self._shared_headers = stored.shared_headers(self._store)
        #: Messages that are handed out next.
        self._ready: Iterator[stored.Stored] = iter(())
        #: Messages for later: when each is due (UTC ms), and the message.
        self._later: list[tuple[float, stored.Stored]] = []
        #: Whether messages are acknowledged; else one is finished when it is handed out.
        self.acknowledges = False
        self._progress: dict[Place, Progress] = {}
        #: The ids of the topics that this is about, by name.
        self.ids: dict[str, bytes] = {}
        #: The names of what is read, and the ids of the topics that the queue was bound to when
        #: that was looked up: no topic's, before the first time.
        self._names: list[str] = []
        self._bound = frozenset((b"",))
        #: The stored positions.
        self._stored: dict[Place, int] = {}
        self._ending.callback(self._reader.close)
        self._ending.callback(self._store_positions)
        reopen_in_child(self._after_fork)

    def _after_fork(self) -> None:
        """Nothing is ready in the child: the parent hands it out."""
        self._ready = iter(())

    def _check_open(self) -> None:
        super()._check_open()
        if self._is_parents:
            raise IllegalStateError(
                "this PullConsumer belongs to the parent process, which gets the messages: make "
                "another one here"
            )

    def attach_queue(self, queue: str, topics: Iterable[str] | str = ()) -> None:
        """Read a queue, and bind it to these topics in addition to those that it has.

        Queue and topics are made when missing. InvalidRequestError for a second queue.
        """
        self._check_open()
        if self.queue not in ("", queue):
            raise InvalidRequestError(
                f"this consumer reads queue {self.queue}: another queue needs another consumer"
            )
        names = checked_names(topics)
        for kind, name in (("queue", queue), *(("topic", name) for name in names)):
            check_name(kind, name)  # before one of them is made
        state = self._log.refresh()
        found = state.queues.find(queue)
        known = map(state.topic_by_id, found.bindings if found else ())
        for topic in filter(None, (*map(state.find_topic, names), *known)):
            if topic.settings.schemas:
                raise InvalidRequestError(
                    f"queue {queue}: {no_bodies(topic.name)} or store.queue, or unbind it "
                    "(`kmq queue unbind`)",
                    topic=topic.name,
                    queue=queue,
                )
        wanted = [self._log_of("Topic", name) for name in names]
        self._log_of("Queue", queue)
        bound = self._log.state.queue(queue).bindings
        if missing := [topic.name for topic in wanted if topic.id not in bound]:
            self._store.bind_queue(queue, missing)
        self.queue = queue
        self._heed_bindings()
        self._reader.assignment()  # so that nothing is handed out of a topic that was deleted

    def _heed_bindings(self) -> bool:
        """Read also what the queue was bound to meanwhile, and nothing more of what was unbound.

        Whether that changed anything: what was read and not taken is then read again. A topic that
        was deleted is no unbound one: what is made in its place is read, too.
        """
        state = self._log.state
        queue = state.queues.find(self.queue)
        bound = self._bound if queue is None else frozenset(queue.bindings)
        if queue is None or bound == self._bound:
            return False
        came, unbound = _names_of(state, bound - self._bound), _names_of(state, self._bound - bound)
        wanted = dict.fromkeys([*sorted(came), *(self._names or [queue_log(queue.name)])])
        names = [name for name in wanted if name not in unbound]
        if is_changed := names != self._names:
            there = list(filter(state.find_topic, names))
            self._reader.unsubscribe()  # else what it still reads would go on behind what was read
            self._reader.subscribe(there, on_assign=self._place)
        self._bound, self._names = bound, names
        return is_changed

    def _place(self, partitions: Partitions) -> None:
        """Read each of these from where it was read before, or from its stored position on.

        Nothing of a topic that was deleted counts for one that has its name now.
        """
        written = self._log.written_state()  # also what is not synced yet
        known = committed_offsets(written, positions_group(self.queue))
        for topic in filter(None, map(self._log.state.find_topic, partitions)):
            if topic.settings.schemas:
                what = "queue %s gets none of its records: %s"
                _LOGGER.warning(what, self.queue, no_bodies(topic.name))
                self._reader.pause({topic.name: partitions[topic.name]})
                continue
            if self.ids.setdefault(topic.name, topic.id) != topic.id:
                self._forget(topic.name)
                self.ids[topic.name] = topic.id
            binding = self._binding(topic.id)
            for number in partitions[topic.name]:
                part = topic.partition(number)
                first = part.start if binding is None else binding.start(number)
                at = part.readable_from(known.get(topic.name, {}).get(number, first))
                progress = self._progress.setdefault((topic.name, number), Progress(at))
                self._stored.setdefault((topic.name, number), at)
                progress.end = part.readable_from(progress.end)
                with suppress(LookupError):  # deleted just now, or trimmed up to where it begins
                    self._reader.seek(topic.name, number, progress.end)

    def _forget(self, name: str) -> None:
        """Drop what was read of a topic that was deleted."""
        self._ready = iter([each for each in self._ready if each[0] != name])
        self._later = sorted(each for each in self._later if each[1][0] != name)
        for place in [each for each in self._progress if each[0] == name]:
            del self._progress[place]
            self._stored.pop(place, None)

    def poll(self, properties: KeyValue | None = None) -> BytesMessage | None:
        """Return the next message; None when there is none, or no queue is attached.

        `properties` may set OPERATION_TIMEOUT: milliseconds to wait for a message. DataLossError,
        once, where a repair cut messages out; call again to go on.
        """
        if self._closed_by is not None:
            self._check_open()  # what was read and not handed out is the next consumer's
        while True:
            for found in self._ready:
                if found[-1] == math.inf or found[-1] >= self._now():
                    return stored.message_of(found)
                self._progress[found[:2]].finish(found[2])  # it has expired
            if not self._fill(properties):
                return None

    def _fill(self, properties: KeyValue | None) -> bool:
        """Once none is ready, read until one is, or the time is over; whether one is."""
        self._check_open()
        now = self._log.environment.monotonic
        deadline = now() + _seconds(properties)
        while self.queue:
            self._log.refresh()  # so that what is new takes its turn, too
            self._store_positions()
            slices = self._slices(0.0)
            if not slices:
                self._shared.settle()  # what this process sent is seen here
                soon = [(due - self._now()) / 1000 for due, _ in self._later[:1]]
                slices = self._slices(max(min(deadline - now(), _LOOK_AGAIN, *soon), 0.0))
            if self._heed_bindings():
                continue
            if self._take(slices):
                return True
            if not slices and now() >= deadline:
                break
        return False

    def _slices(self, seconds: float) -> Slices:
        """What is read next; nobody seeks here, so reading goes on behind a loss it raised."""
        share = max(_TOGETHER // len(self._progress), _LEAST)
        try:
            taken = self._reader._take_slices(_TOGETHER, seconds, share=share, size=_BYTES)
            return taken.hand_out()
        except DataLossError as error:
            topic, number, end = (error.context[name] for name in ("topic", "partition", "end"))
            self._reader.seek(topic, number, end)
            self._progress[topic, number].end = end
            raise

    def _now(self) -> float:
        return self._log.environment.now_us() / 1000

    def _take(self, slices: Slices) -> bool:
        """Make messages that were read ready, or keep them for later; whether any is ready."""
        names = defaultdict[str, list[Iterable[stored.Stored]]](list)
        decides = False
        for part in map(self._let_in, slices):
            place, offsets = (part.topic or "", part.partition), part.offsets().tolist()
            progress = self._progress[place]
            if len(progress.open) > _REMEMBERED and not self.acknowledges:
                progress.open.clear()
            progress.read(offsets, part.end)
            extras = stored.extras_in(part.batch)
            decides = decides or not DECIDING.isdisjoint(extras.header_names())
            of = place, offsets, part.batch, extras, self._shared_headers
            names[place[0]].append(stored.messages_of(*of))
        now = self._now()
        came: list[stored.Stored] = []
        while self._later and self._later[0][0] <= now:
            came.append(heapq.heappop(self._later)[1])
        found = chain(came, _in_turns(names.values()))
        first = self._due(found, now) if decides or came else list(islice(found, 1))
        self._ready = chain(first, found)
        return bool(first)

    def _let_in(self, part: Slice) -> Slice:
        """The messages of a slice that the filters of the queue's binding let in."""
        binding = self._binding(self.ids[part.topic or ""])
        if binding is None or not binding.has_filters:
            return part
        properties = column_of(part.batch, "properties")
        filter_at = partial(binding.filter_at, part.partition)
        return part.taken(np.flatnonzero(let_in(filter_at, part.offsets(), properties)))

    def _binding(self, topic_id: bytes) -> Binding | None:
        """What the queue reads of a topic; None of its own log."""
        queue = self._log.state.queues.find(self.queue)
        return None if queue is None else queue.bindings.get(topic_id)

    def _due(self, found: Iterable[stored.Stored], now: float) -> list[stored.Stored]:
        """The more important first, without those that are too early."""
        due = []
        for message in found:
            start, stop, priority = delivery_of(stored.headers_of(message))
            message = (*message[:-1], stop)
            if start > now:
                heapq.heappush(self._later, (start, message))
            else:
                due.append((-priority, message))
        return [message for _, message in sorted(due, key=itemgetter(0))]

    def ack(self, message_id: str | None) -> None:
        """Acknowledge a message; that survives the end of the process.

        Without any `ack`, a message counts as finished when it is handed out. From the first `ack`
        on, the next consumer begins at the first message that was not acknowledged, even if it was
        handed out hundreds of thousands of messages before. InvalidRequestError for an id that no
        message of this queue has.
        """
        self._check_open()
        found = place_of(message_id)
        if found is None or not self._has(found[:2], found[2]):
            raise InvalidRequestError(f"no message of queue {self.queue} has id {message_id!r}")
        self.acknowledges = True
        self._progress[found[:2]].finish(found[2])
        self._store_positions()

    def _has(self, place: Place, offset: int) -> bool:
        """Whether there is, or was, a message at an offset of what the queue reads."""
        progress = self._progress.get(place)
        if progress is None or offset < progress.end:
            return progress is not None
        topic = self._log.refresh().find_topic(place[0])
        return topic is not None and offset < topic.partition(place[1]).end

    def _positions(self) -> dict[Place, int]:
        """Per place the first message that is not done: acknowledged, or handed out."""
        found = {
            place: each.first_open() if self.acknowledges else each.end
            for place, each in self._progress.items()
        }
        ready = [] if self.acknowledges else list(self._ready)
        self._ready = chain(ready, self._ready)
        for topic, number, offset, *_ in chain(ready, map(itemgetter(1), self._later)):
            found[topic, number] = min(found[topic, number], offset)
        return found

    def _store_positions(self) -> None:
        """Store where the queue goes on, if that moved; at its end, a forked child does not."""
        if self._is_parents:
            return
        found = self._positions()
        moved = {place: at for place, at in found.items() if at != self._stored[place]}
        if moved and (entries := self._entries(moved)):
            self._log.commit([Unit(entries)], durable=False)
        self._stored |= moved  # only now: a refused commit is tried again

    def position_behind(self, message_id: str | None) -> tuple[Entry, ...]:
        """Return the entries that move the queue behind a message when they are committed."""
        topic, number, offset = place_of(message_id) or ("", 0, 0)
        place = topic, number
        return self._entries({place: self._progress[place].first_open(without=offset)})

    def _entries(self, places: dict[Place, int]) -> tuple[Entry, ...]:
        """What commits these positions, but those in topics that were deleted meanwhile."""
        state, group = self._log.written_state(), positions_group(self.queue)
        return tuple(
            GroupOffsetsEntry(group, -1, self.ids[topic], ((number, at),))
            for (topic, number), at in places.items()
            if state.topic_by_id(self.ids[topic]) is not None
        )


def _in_turns(names: Iterable[list[Iterable[stored.Stored]]]) -> Iterator[stored.Stored]:
    """One message of each name after the other, until none has any."""
    turns = zip_longest(*map(chain.from_iterable, names))
    return filter(None, chain.from_iterable(turns))


def _seconds(properties: object) -> float:
    """How long a poll waits."""
    if properties is None:
        return 0.0
    if not isinstance(properties, KeyValue):
        what = f'KeyValue().put("OPERATION_TIMEOUT", 100), not {properties!r}'
        raise InvalidRequestError(f"poll takes a KeyValue, such as {what}")
    return properties.get_int("OPERATION_TIMEOUT") / 1000
