"""Binding of queue entries: check them against the state that they will follow, and complete them.

All functions are pure. `binding` calls them for each kind of entry; the rules for the records of a
queue are in `state.queues.queue`.
"""

from __future__ import annotations

from dataclasses import replace

from kmq_storage.errors import AlreadyExistsError, ConflictError, NotFoundError, QueueFullError
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXHAUSTED,
    RECALL,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    QueueEntry,
    QueueStateEntry,
    SlipAcquireEntry,
    SlipAnswerEntry,
)
from kmq_storage.log.state.queues.late_answers import names_in
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.store_state import StoreState


def check_queue(state: StoreState, entry: QueueEntry) -> None:
    """AlreadyExistsError for a new queue whose name is taken, NotFoundError for a deleted one.

    CorruptionError for a new one that damaged commits may have made.
    """
    existing = state.queues.find(entry.name)
    if entry.settings is None and (existing is None or existing.id != entry.queue_id):
        raise state.missing("Queue", entry.name)
    if existing is None and state.lost_commits:
        raise state.missing("Queue", entry.name)
    if entry.settings is not None and existing is not None:
        raise AlreadyExistsError(f"Queue[{entry.name}] exists already.", queue=entry.name)


def check_queue_state(state: StoreState, entry: QueueStateEntry) -> None:
    """Check a copied queue before it replaces the target's.

    ConflictError when the target's queue changed since it was last copied, AlreadyExistsError when
    another queue has its name.
    """
    existing = state.queues.find(entry.name)
    if existing is not None and existing.id != entry.queue_id:
        raise AlreadyExistsError(
            f"Queue[{entry.name}] exists already in the target, and is no copy of this one.",
            queue=entry.name,
        )
    if (None if existing is None else existing.turns) != entry.replaces:
        raise ConflictError(f"queue {entry.name}: somebody received from it", queue=entry.name)


def bound_bind(state: StoreState, entry: BindEntry) -> BindEntry:
    """A binding with offsets in place of "earliest" or "latest"; NotFoundError without its topic.

    A topic that the queue reads already goes on where it is: only the filter changes, from its
    end on.
    """
    topic = state.topic_by_id(entry.topic_id)
    queue = state.queues.by_id(entry.queue_id)
    if entry.starts is None:
        return entry
    if topic is None:
        raise state.gone.missing(entry.topic_id)
    latest = entry.starts == "latest" or (queue is not None and topic.id in queue.bindings)
    if not (latest or isinstance(entry.starts, str)):
        return entry
    return entry.bound(tuple(part.end if latest else part.start for part in topic.parts))


def check_look(state: StoreState, entry: LookEntry) -> None:
    """ConflictError when another receiver looked there, or the topic was unbound."""
    queue = _live(state, entry.queue_id)
    is_read = entry.topic_id in queue.topic_ids()
    if not is_read or queue.unbound.get(entry.topic_id, 0) != entry.unbound:
        raise ConflictError(f"queue {queue.name}: the topic was unbound", queue=queue.name)
    if queue.looked_up_to((entry.topic_id, entry.partition)) != entry.start:
        raise ConflictError(f"queue {queue.name}: somebody looked there", queue=queue.name)


def bound_acquire(state: StoreState, entry: AcquireEntry) -> AcquireEntry:
    """The records that a receiver gets; ConflictError when there are none.

    An entry for 0 records only removes expired ones. One with a slip gets of each key only one
    record, since a key whose record is noted there stays busy until the slip ends.
    """
    queue = _live(state, entry.queue_id)
    now = state.not_before(entry.time)
    queue.check_slips(now)
    each_once = isinstance(entry, SlipAcquireEntry)
    runs = queue.take(spans_of(state, queue), entry.most, now, each_once=each_once)
    if not (runs or (entry.most == 0 and queue.has_expired(now))):
        raise ConflictError(f"queue {queue.name} has nothing to hand out now", queue=queue.name)
    return entry.bound(now, tuple(runs))


def bound_answer(state: StoreState, entry: AnswerEntry) -> AnswerEntry:
    """An answer with its time; LeaseExpiredError when it comes too late."""
    queue = _live(state, entry.queue_id)
    entry = entry.bound(state.not_before(entry.time))
    queue.check_answer(entry, names_in(state))
    return entry


def bound_slip(state: StoreState, entry: SlipAnswerEntry) -> SlipAnswerEntry:
    """The answers noted on a slip; ConflictError when another process commits them."""
    _live(state, entry.queue_id).check_slip(entry)
    return replace(entry, time=state.not_before(entry.time))


def check_queue_capacity(state: StoreState, queue_id: bytes, rows: int, added: int) -> None:
    """QueueFullError when a queue has no room for `rows` more records.

    `added` counts the records that earlier entries of the commit add, less those that they free.
    """
    queue = state.queues.by_id(queue_id)
    if queue is None or queue.settings.capacity is None:
        return
    held = queue.held(spans_of(state, queue), state.time) + added
    room = queue.settings.capacity - held
    if rows > room:
        raise QueueFullError(
            f"queue {queue.name} is full: {held} of {queue.settings.capacity} records are not "
            f"finished, and it has room for {max(room, 0)} of {rows} more; send again when "
            "some are, or fewer at a time",
            queue=queue.name,
            capacity=queue.settings.capacity,
            room=max(room, 0),
            rows=rows,
        )


def freed_by(entry: AnswerEntry) -> int:
    """The number of records that an answer finishes, so that a queue has room for others.

    0 for a slip's answer: its records may have been answered in another way before.
    """
    if isinstance(entry, SlipAnswerEntry) or entry.answer not in (ACK, DEAD, EXHAUSTED, RECALL):
        return 0
    return sum(run.rows for run in entry.runs)


def _live(state: StoreState, queue_id: bytes) -> Queue:
    queue = state.queues.by_id(queue_id)
    if queue is None:
        if state.gone.find(queue_id) is None:  # the queue's own log had the same id
            raise NotFoundError(f"Queue[{queue_id.hex()}] doesn't exist.", queue=queue_id.hex())
        raise state.gone.missing(queue_id)
    return queue
