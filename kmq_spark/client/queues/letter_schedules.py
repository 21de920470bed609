"""What a dead letter keeps of its schedule, for its way back: its priority, and when it expires.

Among dead letters neither counts: there they stay, in their order, for whoever looks after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kmq_spark.client.queues.delivery import Delivery
from kmq_storage.format.schedule_entry import Schedule, ScheduleEntry
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.rows import NEVER, PRIORITY

_PRIORITY = "dead_letter_priority"
#: UTC microseconds.
_EXPIRES = "dead_letter_expires_at"
#: The properties of a letter that tell its schedule.
SCHEDULE = (_PRIORITY, _EXPIRES)
_PRIORITIES = range(10)
#: What a datetime holds, from 1970 on.
_INSTANTS = range(253_402_300_800_000_000)


def schedule_of(queue: Queue, delivery: Delivery) -> dict[str, Any]:
    """The properties of a dead letter for what its record's schedule in a queue was, if any."""
    key, offset = delivery.place
    source = queue.sources.get(key)
    spans = [] if source is None else source.rows.spans(offset, offset + 1)
    facts = dict[str, Any]()
    for row in (rows[0] for rows in spans):
        if row["priority"] != PRIORITY:
            facts[_PRIORITY] = int(row["priority"])
        if row["expires"] != NEVER:
            facts[_EXPIRES] = max(int(row["expires"]), 0)
    return facts


def schedules_again(
    target: Queue, letters: Iterable[Mapping[str, Any]]
) -> tuple[ScheduleEntry, ...]:
    """The entry that gives records with these properties the schedules that they had."""
    none = Schedule(0, 0, NEVER, PRIORITY)
    ordered = target.settings.order != "none"  # it may be another queue of this name
    found = list[Schedule]()
    for row, facts in enumerate(letters):
        priority, expires = facts.get(_PRIORITY), facts.get(_EXPIRES)
        schedule = none
        if type(priority) is int and priority in _PRIORITIES and not ordered:
            schedule = schedule._replace(priority=priority)
        if type(expires) is int and expires in _INSTANTS:
            schedule = schedule._replace(expires=expires)
        if schedule != none:
            found.append(schedule._replace(row=row))
    return (ScheduleEntry(target.id, 0, tuple(found)),) if found else ()
