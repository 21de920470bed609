"""Administration of queues: create, bind, unbind, delete and list them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kmq_storage.errors import AlreadyExistsError, InvalidRequestError, KmqWarning
from kmq_storage.format.entries import Entry, TopicEntry
from kmq_storage.format.queue_entries import BindEntry, QueueEntry
from kmq_storage.limits import NAME_LENGTH_MAX
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.model import QueueInfo, QueueSettings, QueueStats, TopicSettings
from kmq_storage.names import check_name, queue_log
from kmq_storage.queues.filters import checked_filter
from kmq_storage.queues.looking import entering_later
from kmq_storage.queues.slips import disown_all, take_over_all, with_notes
from kmq_storage.settings import Rule, checked, differences, durations, waits, whole_numbers, words
from kmq_storage.topics import offsets_for_time

_COUNT = whole_numbers(2**31 - 1, optional=True)
_RULES = {
    "lock_timeout": durations(),
    "max_deliveries": _COUNT,
    "backoff": waits(),
    "order": words("none", "key", "strict"),
    "dead_letter": Rule("a queue's name", partial(check_name, "queue"), optional=True),
    "capacity": _COUNT,
    "uniq_window": durations(),
}
#: The settings of a dead-letter queue that is created on first use.
_DEAD_LETTERS = QueueSettings(max_deliveries=None)


def create_queue(
    log: CommitLog, name: str, topics: Sequence[str], changes: Mapping[str, Any], *, exist_ok: bool
) -> QueueInfo:
    """Create a queue, or keep an existing one if `exist_ok`; a warning names what differs."""
    check_name("queue", name)
    topics = [check_name("topic", topic) for topic in topics]
    settings = QueueSettings(**checked("queue", changes, _RULES))
    if settings.dead_letter == name:
        raise InvalidRequestError(
            f"queue setting dead_letter must be another queue, not {name!r}", setting="dead_letter"
        )
    state = log.refresh()
    found = state.queues.find(name)
    if found is None:
        found = _make(log, name, topics, settings)
        if found is not None:
            return info_of(log, found)
        found = log.state.queue(name)
    if not exist_ok:
        raise AlreadyExistsError(f"Queue[{name}] exists already.", queue=name)
    _warn_of_differences(log.state, found, topics, settings)
    return info_of(log, found)


def _make(
    log: CommitLog, name: str, topics: Sequence[str], settings: QueueSettings
) -> Queue | None:
    """Create a queue; None when another process was faster."""
    state = log.refresh()
    queue_id = log.environment.new_uuid().bytes
    own = TopicSettings(uniq_window=settings.uniq_window)
    entries: list[Entry] = [
        QueueEntry(queue_id, name, settings.to_json()),
        TopicEntry(queue_id, queue_log(name), 1, own.to_json()),
    ]
    entries += [BindEntry(queue_id, state.topic(topic).id, "earliest") for topic in topics]
    try:
        log.commit([Unit(tuple(entries))])
    except AlreadyExistsError:
        log.refresh()
        return None
    return log.refresh().queues.by_id(queue_id)


def _warn_of_differences(
    state: StoreState, queue: Queue, topics: Sequence[str], wanted: QueueSettings
) -> None:
    listed = differences(queue.settings.to_json(), wanted.to_json())
    missing = sorted(set(topics) - set(topics_of(state, queue)))
    if missing:
        listed.append(f"it is not bound to {', '.join(missing)} (use bind_queue)")
    if listed:
        warnings.warn(
            f"queue {queue.name} exists and keeps its settings: {', '.join(listed)}",
            KmqWarning,
            stacklevel=4,
        )


def dead_letters_of(log: CommitLog, queue: Queue) -> Queue:
    """The queue for a queue's dead letters, which is created when it does not exist.

    InvalidRequestError when its name is too long for a queue.
    """
    found = log.refresh().queues.find(queue.dead_letter)
    while found is None:
        _check_place(queue)
        found = _make(log, queue.dead_letter, (), _DEAD_LETTERS)
        found = found or log.state.queues.find(queue.dead_letter)
    return found


def _check_place(queue: Queue) -> None:
    length, most = len(queue.dead_letter), NAME_LENGTH_MAX
    if length > most:
        raise InvalidRequestError(
            f"records of queue {queue.name} can't become dead letters: the name of their queue, "
            f"{queue.dead_letter}, would have {length} characters, and {most} are allowed; ack the "
            "record, or have it handed out again with nack",
            queue=queue.name,
        )


def bind_queue(
    log: CommitLog,
    name: str,
    topics: Sequence[str],
    start: str | int,
    *,
    filter: str | None = None,  # noqa: A002 - the name users type
) -> None:
    """Bind a queue to topics.

    `start` is `earliest`, `latest`, or a timestamp (UTC us) to begin at. If the queue already reads
    a topic, it goes on where it is, and only the filter changes from now on.
    """
    if filter is not None:
        checked_filter(filter)
    state = log.refresh()
    queue = state.queue(check_name("queue", name, is_new=False))
    entries = [
        replace(_binding(log, state, queue, topic, start), filter=filter) for topic in topics
    ]
    if entries:
        log.commit([Unit(tuple(entries))])
        log.refresh()


def _binding(
    log: CommitLog, state: StoreState, queue: Queue, topic: str, start: str | int
) -> BindEntry:
    found = state.topic(check_name("topic", topic))
    if isinstance(start, str):
        return BindEntry(queue.id, found.id, start)
    firsts = offsets_for_time(log, topic, start)
    starts = (
        part.end if (first := firsts[number]) is None else first
        for number, part in enumerate(found.parts)
    )
    return BindEntry(queue.id, found.id, tuple(starts))


def unbind_queue(log: CommitLog, name: str, topics: Sequence[str]) -> None:
    """Unbind a queue from topics; it drops their unfinished records."""
    state = log.refresh()
    queue = state.queue(check_name("queue", name, is_new=False))
    ids = [state.topic(topic).id for topic in topics]
    entries = [BindEntry(queue.id, each, None) for each in ids if each in queue.bindings]
    if entries:
        unbound = {entry.topic_id for entry in entries}
        take_over_all(log, [queue], unbound)  # what is acknowledged by now counts
        log.commit([Unit(tuple(entries))])
        log.refresh()
        take_over_all(log, [queue], unbound)


def delete_queue(log: CommitLog, name: str) -> None:
    """Delete a queue and the records that were sent to it; the topics that it read stay."""
    queue = log.refresh().queue(check_name("queue", name, is_new=False))
    own_log = TopicEntry(queue.id, queue_log(name), 0, {})
    log.commit([Unit((QueueEntry(queue.id, name, None), own_log))])
    log.refresh()
    disown_all(log, queue)


def list_queues(log: CommitLog) -> list[QueueInfo]:
    """All queues, sorted by name."""
    found = sorted(log.refresh().queues, key=lambda queue: queue.name)
    return [info_of(log, queue) for queue in found]


def stats_of(log: CommitLog, queue: Queue) -> QueueStats:
    """The statistics of a queue."""
    queue = with_notes(log, queue)
    spans = spans_of(log.state, queue)
    entering = entering_later(log, ChunkReader(log.files), queue)
    return queue.stats(spans, log.now_us(), entering)


def info_of(log: CommitLog, queue: Queue) -> QueueInfo:
    """The facts of a queue as a value."""
    topics = topics_of(log.state, queue)
    return QueueInfo(queue.name, topics, queue.settings, stats_of(log, queue))


def topics_of(state: StoreState, queue: Queue) -> list[str]:
    """The names of the topics that a queue is bound to, sorted."""
    found = (state.topic_by_id(topic_id) for topic_id in list(queue.bindings))
    return sorted(topic.name for topic in found if topic is not None)
