"""Dead letters: records that move from one queue to another, with where they come from."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from kmq_spark.client.encoding.rows import rows_of_columns
from kmq_spark.client.encoding.units import records_unit
from kmq_spark.client.encoding.waiting_extras import WaitingExtras, waiting_extras
from kmq_spark.client.queues.delivery import Delivery, runs_of_deliveries
from kmq_spark.client.queues.letter_schedules import SCHEDULE, schedule_of
from kmq_spark.client.queues.reading import missing_of
from kmq_spark.client.queues.reasons import TOO_OFTEN
from kmq_spark.client.queues.typed_letters import letter_value
from kmq_spark.client.records.record import Record
from kmq_spark.errors import (
    ConflictError,
    CorruptionError,
    DataLossError,
    NotFoundError,
    QueueFullError,
)
from kmq_storage.format.entries import Entry
from kmq_storage.format.queue_entries import EXHAUSTED, RECALL, Run
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.gone_topics import deleted
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.queues import handing
from kmq_storage.queues.administration import dead_letters_of
from kmq_storage.queues.looking import pass_refused
from kmq_storage.queues.lost_records import NOT_THERE, loss_met
from kmq_storage.queues.slips import take_over_ended

#: The property of a letter that died again among dead letters: the queue it died in first.
_HOME = "dead_letter_home"
#: What each dead letter has. A record with some of them only has them from its sender.
_FACTS = frozenset(f"dead_letter_{name}" for name in ("queue", "offset", "count", "reason"))
#: What the letters of queues and of groups have from one death, and not from an earlier one.
_OF_A_DEATH = _FACTS.union(
    (f"dead_letter_{name}" for name in ("group", "topic", "partition")), (_HOME,), SCHEDULE
)
#: Dead letters that are moved in one commit.
MOVED = 500
_LOGGER = logging.getLogger(__name__)
#: Why dead letters stay in their queue, by the ids of such queues. Each receive comes past them:
#: the log tells it once, and again if it was over in between.
_staying: dict[bytes, str] = {}
_STAYING_MAX = 10_000

#: Reads the records of runs of a queue, by its name.
Reading: TypeAlias = Callable[[str, Sequence[Run]], list[Delivery]]


def bury_all(log: CommitLog, queue: Queue, read: Reading) -> None:
    """Move what was handed out too often: from a queue, and from queues whose dead letters it gets.

    What was noted of records whose lock ended is committed first.
    """
    for each in (queue, *log.state.queues.with_dead_letters_in(queue.name)):
        take_over_ended(log, each)
        runs = each.exhausted(log.now_us())
        if not runs:
            _staying.pop(each.id, None)
        else:
            runs = _as_many_as_fit(log, each, runs)
        while runs:
            some, runs = _first(runs, MOVED)
            _bury_runs(log, each, some, read)


def room_in(log: CommitLog, queue: Queue) -> int:
    """Return how many more records a queue takes now."""
    capacity = queue.settings.capacity
    if capacity is None:
        return sys.maxsize
    queue = _without_refused(log, queue)
    return max(capacity - queue.held(spans_of(log.state, queue), log.state.time), 0)


def _without_refused(log: CommitLog, queue: Queue) -> Queue:
    """The queue once it is known which records its filter refuses: these take no room."""
    while pass_refused(log, ChunkReader(log.files), queue):
        queue = log.state.queues.by_id(queue.id) or queue
    return queue


def _as_many_as_fit(log: CommitLog, queue: Queue, runs: list[Run]) -> list[Run]:
    """Return the first of these runs that the queue of dead letters has room for."""
    target = log.state.queues.find(queue.dead_letter)
    if target is None:
        return runs
    fitting, others = _first(runs, room_in(log, target))
    if others:
        left = sum(run.rows for run in others)
        _say_once(queue, f"queue {target.name} is full: {left} of {queue.name} stay there", "full")
    return fitting


def _say_once(queue: Queue, text: str, why: str) -> None:
    if _staying.get(queue.id) == why:
        return
    if len(_staying) >= _STAYING_MAX:
        _staying.clear()
    _staying[queue.id] = why
    _LOGGER.warning("%s", text)


def _bury_runs(log: CommitLog, queue: Queue, runs: Sequence[Run], read: Reading) -> None:
    try:
        found = read(queue.name, runs)
        gone = missing_of(runs, {each.place for each in found})
        if gone:
            entry = handing.answer(log, queue, RECALL, gone, reason=NOT_THERE)
            log.commit([Unit((entry,))])
            loss_met(log, queue, gone)  # the log warns of it
        if found:
            bury(log, queue, found, EXHAUSTED, TOO_OFTEN)
    except (ConflictError, QueueFullError, NotFoundError):
        pass  # another process did it, took the room, or deleted one of the queues
    except (DataLossError, CorruptionError) as error:
        text = f"queue {queue.name}: dead letters stay where they are: {error}"
        _say_once(queue, text, str(error))


def bury(
    log: CommitLog, queue: Queue, deliveries: Sequence[Delivery], answer: int, reason: str
) -> None:
    """Make deliveries dead letters: they are stored there and finished here in one commit."""
    target = _without_refused(log, dead_letters_of(log, queue))
    entry = handing.answer(log, queue, answer, runs_of_deliveries(deliveries))
    records = [
        (
            each,
            origin(log.state, queue.name, each, each.delivery_count, reason)
            | schedule_of(queue, each),
        )
        for each in deliveries
    ]
    log.commit([moving(log, target, records, entry)])
    log.refresh()


def _first(runs: list[Run], most: int) -> tuple[list[Run], list[Run]]:
    """The runs of the first `most` records, and the rest."""
    taken: list[Run] = []
    left: list[Run] = []
    for run in runs:
        count = min(run.rows, most)
        most -= count
        if count:
            taken.append(run._replace(rows=count))
        if count < run.rows:
            left.append(run._replace(first=run.first + count, rows=run.rows - count))
    return taken, left


def origin(
    state: StoreState, queue: str, record: Record, count: int, reason: str
) -> dict[str, Any]:
    """Return the properties of a dead letter: its own, and those that tell where it comes from.

    Only among dead letters do a record's own properties tell that it died before: elsewhere its
    sender may have passed them on.
    """
    home = (home_of(record) if state.queues.with_dead_letters_in(queue) else None) or queue
    facts = {
        "dead_letter_queue": queue,
        "dead_letter_partition": record.partition,
        "dead_letter_offset": record.offset,
        "dead_letter_count": count,
        "dead_letter_reason": reason,
    }
    if record.topic is not None:
        facts["dead_letter_topic"] = record.topic
    if home != queue:
        facts[_HOME] = home
        facts |= {name: record.properties[name] for name in SCHEDULE if name in record.properties}
    return without_deaths(record) | facts


def without_deaths(record: Record) -> dict[str, Any]:
    """The properties of a record but for those that a death gave it, or its sender passed on."""
    return {name: value for name, value in record.properties.items() if name not in _OF_A_DEATH}


def _died_in(record: Record) -> tuple[Any, Any]:
    """The queues that a record died in, last and first; None for none, or the same."""
    known = record.properties
    is_letter = known.keys() >= _FACTS
    return (known["dead_letter_queue"], known.get(_HOME)) if is_letter else (None, None)


def home_of(record: Record) -> Any:
    """The queue that a dead letter died in first; None for what is no letter."""
    died, home = _died_in(record)
    return home or died


def is_letter_of(state: StoreState, queue: Queue, record: Record) -> bool:
    """Whether a record among a queue's dead letters died in it, the last time or before."""
    died, home = _died_in(record)
    return queue.name in (died, home) or queue.name in _way(state, home or died, queue.dead_letter)


def _way(state: StoreState, home: Any, end: str) -> set[str]:
    """The queues that a record died in on its way from its home to a queue of dead letters."""
    way, at = set[str](), home
    while at != end and at not in way and (found := state.queues.find(at)) is not None:
        way.add(at)
        at = found.dead_letter
    return way


def moving(
    log: CommitLog,
    target: Queue,
    records: Sequence[tuple[Record, Mapping[str, Any]]],
    *entries: Entry,
) -> Unit:
    """Records with these properties for a queue's own log, and what is committed with them."""
    topic = log.state.topic_by_id(target.id)
    if topic is None:
        raise deleted("queue", target.name)
    unit = letters_unit(log, topic, 0, records)
    return replace(unit, entries=(*unit.entries, *entries))


def letters_unit(
    log: CommitLog,
    topic: Topic,
    partition: int,
    letters: Sequence[tuple[Record, Mapping[str, Any]]],
) -> Unit:
    """What commits records as they were, but with these properties."""
    values, extras = list[bytes | None](), dict[int, WaitingExtras]()
    for row, (record, properties) in enumerate(letters):
        value, more = letter_value(log.state, record)
        facts = {**properties, **more}
        values.append(value)
        extras[row] = waiting_extras(record.headers or None, facts or None)
    keys = [record.key for record, _ in letters]
    times = np.array([record[7] for record, _ in letters], np.int64)
    rows = rows_of_columns(values, keys, times, extras)
    return records_unit(log, topic, rows, partition)
