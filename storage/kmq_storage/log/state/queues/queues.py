"""All queues of a store, and how the entries of a commit change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kmq_storage.errors import FormatVersionError
from kmq_storage.format.queue_entries import (
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    QueueChange,
    QueueEntry,
    SealedSlipAcquireEntry,
    SlipAcquireEntry,
    SlipAnswerEntry,
)
from kmq_storage.format.schedule_entry import ScheduleEntry
from kmq_storage.log.state.queues.queue import Queue, Spans
from kmq_storage.model import QueueSettings

if TYPE_CHECKING:
    from kmq_storage.log.state.store_state import StoreState

_Key = TypeVar("_Key")


class Queues:
    """Every queue of a store, by name and by id."""

    def __init__(self) -> None:
        self._by_name: dict[str, Queue] = {}
        self._by_id: dict[bytes, Queue] = {}
        #: Queues by the name of the queue that their dead letters go to.
        self._by_dead_letter: dict[str, dict[bytes, Queue]] = {}
        #: Queues by the id of each topic that they are bound to, or were before.
        self._by_topic: dict[bytes, dict[bytes, Queue]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __iter__(self) -> Iterator[Queue]:
        return iter(list(self._by_id.values()))

    def find(self, name: str) -> Queue | None:
        """The queue with this name, or None."""
        return self._by_name.get(name)

    def by_id(self, queue_id: bytes) -> Queue | None:
        """The queue with this id, unless it was deleted."""
        return self._by_id.get(queue_id)

    def add(self, queue: Queue) -> None:
        """Add a queue; it replaces one with the same id."""
        self._remove(queue.id)
        self._by_id[queue.id] = self._by_name[queue.name] = queue
        _note(self._by_dead_letter, queue.dead_letter, queue)
        for topic_id in _known_topics(queue):
            _note(self._by_topic, topic_id, queue)

    def _remove(self, queue_id: bytes) -> None:
        queue = self._by_id.pop(queue_id, None)
        if queue is not None:  # None when the commit that created it is damaged
            del self._by_name[queue.name]
            _strike(self._by_dead_letter, queue.dead_letter, queue)
            for topic_id in _known_topics(queue):
                _strike(self._by_topic, topic_id, queue)

    def with_dead_letters_in(self, name: str) -> list[Queue]:
        """The queues whose dead letters go to the queue with this name."""
        return list(self._by_dead_letter.get(name, {}).values())

    def rules(self) -> Mapping[type, Callable[[Any, int, int], None]]:
        """The function that applies each kind of entry."""
        told: Mapping[type, Callable[[Queue, Any], None]] = {
            BindEntry: self._bind,
            ScheduleEntry: _schedule,
            LookEntry: Queue.apply_look,
            AcquireEntry: Queue.apply_acquire,
            AnswerEntry: Queue.apply_answer,
            SlipAcquireEntry: Queue.apply_acquire,
            SealedSlipAcquireEntry: Queue.apply_acquire,
            SlipAnswerEntry: Queue.apply_slip,
        }
        of_queue = {kind: partial(self._tell, apply) for kind, apply in told.items()}
        return {QueueEntry: self._apply_queue, **of_queue}

    def _tell(
        self, apply: Callable[[Queue, Any], None], entry: QueueChange, lsn: int, time: int
    ) -> None:
        """Apply an entry to its queue, unless that was deleted meanwhile."""
        queue = self._by_id.get(entry.queue_id)
        if queue is not None:
            apply(queue, entry)

    def _apply_queue(self, entry: QueueEntry, lsn: int, time: int) -> None:
        if entry.settings is not None:
            settings = queue_settings_of(entry.name, entry.settings)
            self.add(Queue(entry.queue_id, entry.name, settings))
        else:
            self._remove(entry.queue_id)

    def forget_topic(self, topic_id: bytes) -> None:
        """Drop a deleted topic from the queues that know it."""
        for queue in self._that_know(topic_id):
            queue.forget_topic(topic_id)
        self._by_topic.pop(topic_id, None)

    def unfinished_below(self, topic_id: bytes, partition: int, start: int) -> list[Queue]:
        """The queues that read a topic and did not finish a partition's records up to `start`."""
        key, readers = (topic_id, partition), self._that_know(topic_id)
        return [
            q for q in readers if topic_id in q.topic_ids() and q.done_below(key, start) < start
        ]

    def trim(self, topic_id: bytes, partition: int, start: int) -> None:
        """Drop the records of a partition before its new start from the queues that know them."""
        for queue in self._that_know(topic_id):
            queue.trim((topic_id, partition), start)

    def _that_know(self, topic_id: bytes) -> list[Queue]:
        """The queues with a topic, out of very many others: a queue's own log has its id."""
        own = self._by_id.get(topic_id)
        return [*([] if own is None else [own]), *self._by_topic.get(topic_id, {}).values()]

    def _bind(self, queue: Queue, entry: BindEntry) -> None:
        _note(self._by_topic, entry.topic_id, queue)
        if entry.starts is None:
            queue.unbind(entry.topic_id)
        else:
            assert not isinstance(entry.starts, str), "bound"
            queue.bind(entry.topic_id, entry.starts, entry.filter)


def _known_topics(queue: Queue) -> set[bytes]:
    return {*queue.bindings, *queue.unbound}


def _note(index: dict[_Key, dict[bytes, Queue]], key: _Key, queue: Queue) -> None:
    index.setdefault(key, {})[queue.id] = queue


def _strike(index: dict[_Key, dict[bytes, Queue]], key: _Key, queue: Queue) -> None:
    others = index[key]
    del others[queue.id]
    if not others:
        del index[key]


def _schedule(queue: Queue, entry: ScheduleEntry) -> None:
    queue.apply_schedule(entry.base_offset, entry.schedules)


def queue_settings_of(queue: str, members: Mapping[str, Any]) -> QueueSettings:
    """The settings of a queue from their JSON object; FormatVersionError for unknown ones."""
    try:
        return QueueSettings(**{**members, "backoff": tuple(members["backoff"])})
    except TypeError as error:
        raise FormatVersionError(
            f"queue {queue} has settings that this version of kmq does not know ({error}); "
            "read the store with a newer kmq",
            queue=queue,
        ) from error


def spans_of(state: StoreState, queue: Queue) -> Spans:
    """The start and end of each partition that a queue reads."""
    topics = [state.topic_by_id(topic_id) for topic_id in queue.topic_ids()]
    return {
        (topic.id, number): (part.start, part.end)
        for topic in topics
        if topic is not None
        for number, part in enumerate(topic.parts)
    }
