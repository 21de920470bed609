"""Schedules of records that are sent to a queue: when, and before which others, they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from kmq_spark.client.handles.arguments import checked_stored_seconds
from kmq_spark.client.records.values import Extras, PlainExtras, to_timestamp
from kmq_spark.errors import InvalidRequestError
from kmq_storage.format.schedule_entry import Schedule, ScheduleEntry
from kmq_storage.log.state.queues.rows import NEVER, PRIORITY
from kmq_storage.numeric import whole

_PRIORITIES = range(10)


def scheduled(
    now: int,
    delay: float | timedelta | None,
    deliver_at: datetime | None,
    expires_at: datetime | None,
    *,
    priority: int | None,
) -> Schedule | None:
    """The checked schedule of a record, for row 0; None when it comes at once, like most."""
    if delay is not None and deliver_at is not None:
        raise InvalidRequestError("give a delay or deliver_at, not both", field="delay")
    urgency = PRIORITY if priority is None else whole(priority)
    if urgency is None or urgency not in _PRIORITIES:
        raise InvalidRequestError(
            f"priority must be a whole number from 0 to 9, not {priority!r}", field="priority"
        )
    at = 0
    if delay is not None:
        at = now + round(checked_stored_seconds("delay", delay) * 1e6)
    elif deliver_at is not None:
        at = to_timestamp(deliver_at, "deliver_at")
    expires = NEVER if expires_at is None else to_timestamp(expires_at, "expires_at")
    plain = at <= now and expires == NEVER and urgency == PRIORITY
    return None if plain else Schedule(0, at, expires, urgency)


def schedule_entry(
    queue_id: bytes, kept: Iterable[int], extras: Mapping[int, PlainExtras]
) -> tuple[ScheduleEntry, ...]:
    """The entry to commit beside records for a queue's own log, with the schedules of `kept`."""
    found = [
        schedule._replace(row=row)
        for row, own in enumerate(kept)
        if own in extras and (schedule := Extras._make(extras[own]).schedule) is not None
    ]
    return (ScheduleEntry(queue_id, 0, tuple(found)),) if found else ()
