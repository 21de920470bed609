"""Why a record of a queue got no receiver: its time was over, or a filter refused it.

Both are followed commit by commit, as no entry says them: an expired record is dropped with the
next delivery, and a look names the records that enter the queue only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kmq_storage.format.entries import Entry
from kmq_storage.format.queue_entries import (
    EXTEND,
    RELEASE,
    RETRY,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
)
from kmq_storage.format.schedule_entry import Schedule, ScheduleEntry
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.rows import NEVER, PRIORITY
from kmq_storage.log.state.queues.topics import Binding
from kmq_storage.model import to_datetime


class Term:
    """The time of a record in a queue's own log, and how long a receiver holds it."""

    def __init__(self) -> None:
        self._expires = NEVER
        self._held_until = 0

    def begin(self, entries: Iterable[Entry], topic_id: bytes, offset: int) -> Mapping[str, Any]:
        """Take the times of a record that these entries send; returns them as facts."""
        for entry in entries:
            if isinstance(entry, ScheduleEntry) and entry.queue_id == topic_id:
                for each in entry.schedules:
                    if entry.base_offset + each.row == offset:
                        self._expires = each.expires
                        return _facts_of(each)
        return {}

    def hold(self, entry: AcquireEntry) -> None:
        """A receiver holds the record."""
        self._held_until = entry.until

    def answer(self, entry: AnswerEntry) -> None:
        """A receiver answered; after an answer that ends the record, it can't expire any more."""
        if entry.answer in (EXTEND, RETRY, RELEASE):
            self._held_until = entry.at if entry.answer == EXTEND else 0
        else:
            self._expires = NEVER

    def end(self, now: int) -> Mapping[str, Any]:
        """Drop the record if it has expired, and nobody holds it: what is to tell of it, once."""
        if max(self._expires, self._held_until) > now:
            return {}
        facts = {"expires_at": to_datetime(self._expires)}
        self._expires = NEVER
        return facts


def _facts_of(schedule: Schedule) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    if schedule.at:
        facts["deliver_at"] = to_datetime(schedule.at)
    if schedule.expires != NEVER:
        facts["expires_at"] = to_datetime(schedule.expires)
    if schedule.priority != PRIORITY:
        facts["priority"] = schedule.priority
    return facts


class Refusals:
    """The filters of queues for one topic, and the looks that found a record refused."""

    def __init__(self, partition: int, offset: int) -> None:
        self._place = partition, offset
        #: By the ids of queues whose bindings the log tells.
        self._bindings: dict[bytes, Binding] = {}
        #: What was told of looks before any binding in the log, by the ids of the queues.
        self._unnamed: list[tuple[bytes, dict[str, Any]]] = []

    def bind(self, entry: BindEntry) -> None:
        """A queue is bound, unbound, or gets another filter."""
        known = self._bindings.get(entry.queue_id, Binding(()))
        if isinstance(entry.starts, tuple):
            known = known.changed(entry.starts, entry.filter, lambda _: 0)
        self._bindings[entry.queue_id] = known if entry.starts is not None else Binding(())

    def look(self, entry: LookEntry, queue: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is to tell of a look at the record; nothing when the record enters the queue.

        `queue`: the facts that name the queue.
        """
        if any(first <= self._place[1] < first + count for first, count in entry.entered):
            return {}
        facts = dict(queue)
        binding = self._bindings.get(entry.queue_id)
        if binding is None:
            self._unnamed.append((entry.queue_id, facts))
        else:
            facts |= _filter_of(binding, self._place)
        return facts

    def name_filters(self, queues: Mapping[bytes, Queue], topic_id: bytes) -> None:
        """Tell the filters of queues whose bindings are older than the log, and never changed."""
        for queue_id, facts in self._unnamed:
            queue = queues.get(queue_id)
            if queue is not None and queue_id not in self._bindings and topic_id in queue.bindings:
                facts |= _filter_of(queue.bindings[topic_id], self._place)


def _filter_of(binding: Binding, place: tuple[int, int]) -> Mapping[str, Any]:
    expression, _ = binding.filter_at(*place)
    return {} if expression is None else {"filter": expression}
