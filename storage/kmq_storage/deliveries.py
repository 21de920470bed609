"""Hand-outs of a queue: acquire records, answer for them, and wait for some.

The edges of `log.queue_state`, which decides when a commit is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from kmq_storage.errors import ConflictError
from kmq_storage.format.entries import Entry
from kmq_storage.format.queue_entries import (
    RECALL,
    AcquireEntry,
    AnswerEntry,
    Run,
    SealedSlipAcquireEntry,
)
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.gone_topics import deleted
from kmq_storage.log.queue_state import Queue
from kmq_storage.log.queues import spans_of
from kmq_storage.log.state import StoreState

#: One hour is as good as for ever: a waiting receiver then looks again.
_LONG = 3600.0
#: More than that an entry can't ask for.
_MOST = 2**32 - 1


def live_queue(state: StoreState, queue_id: bytes, name: str) -> Queue:
    """The queue with this id; NotFoundError when it was deleted."""
    queue = state.queues.by_id(queue_id)
    if queue is None:
        raise deleted("queue", name)
    return queue


def try_acquire(
    log: CommitLog,
    queue: Queue,
    most: int,
    client: str,
    *,
    slip: tuple[bytes, int, int] | None = None,
    before: Sequence[Entry] = (),
) -> AcquireEntry | None:
    """Hold the first records that can be had, at most so many; None when there are none.

    With a `slip` (id, number of its use, start of the machine) what is noted there counts; entries
    `before` it go into the same commit.
    """
    now = log.now_us()
    if not queue.take(spans_of(log.state, queue), 1, now):
        forget_expired(log, queue, client)
        return None
    until = now + round(queue.settings.lock_timeout * 1e6)
    facts = (queue.id, now, until, min(most, _MOST), client)
    entry = AcquireEntry(*facts) if slip is None else SealedSlipAcquireEntry(*facts, (), *slip)
    try:
        commit = log.commit([Unit((*before, entry))])
    except ConflictError:
        return None  # others were faster
    acquired = commit.entries[-1]
    assert isinstance(acquired, AcquireEntry), "as it was handed in"
    return acquired


def forget_expired(log: CommitLog, queue: Queue, client: str) -> bool:
    """Have records whose time is over take up no room, though nobody gets another one now.

    False when there are none.
    """
    now = log.now_us()
    if not queue.has_expired(now):
        return False
    with suppress(ConflictError):  # somebody else did
        log.commit([Unit((AcquireEntry(queue.id, now, now, 0, client),))], durable=False)
    log.refresh()
    return True


def wait_for_more(
    log: CommitLog, queue: Queue, lsn: int, seconds: float, stopped: Callable[[], bool]
) -> None:
    """Sleep until a commit after an LSN, or until a record comes back by itself."""
    now = log.now_us()
    due = (queue.next_after(now) - now) / 1e6
    log.wait(lsn, min(seconds, max(due, 0.0) + 1e-4, _LONG), stopped)


def answer(
    log: CommitLog, queue: Queue, what: int, runs: Iterable[Run], at: int = 0
) -> AnswerEntry:
    """What is to be committed for an answer: alone, or beside what follows from it."""
    return AnswerEntry(queue.id, what, log.now_us(), at, tuple(runs))


def still_held(queue: Queue, runs: Iterable[Run], now: int) -> list[Run]:
    """The records of some runs that nobody lost by now (UTC us)."""
    found: list[Run] = []
    for run in runs:
        source = queue.sources.get((run.topic_id, run.partition))
        found += [] if source is None else source.held_of(run, now)
    return found


def recall(log: CommitLog, queue: Queue, offset: int) -> bool:
    """Take back a record that was sent to a queue; False when somebody had it."""
    run = Run(*queue.log_key, offset, 1, 0)
    try:
        log.commit([Unit((answer(log, queue, RECALL, [run]),))])
    except ConflictError:
        return False
    return True


def merged(runs: Sequence[Run]) -> list[Run]:
    """Runs in order, neighbours and what they repeat as one."""
    found: list[list[Any]] = []
    for topic_id, partition, first, rows, delivery in sorted(runs):
        last = found[-1] if found else None
        of = [topic_id, partition, delivery]
        if last and [last[0], last[1], last[4]] == of and first <= last[2] + last[3]:
            last[3] = max(last[3], first + rows - last[2])
        else:
            found.append([topic_id, partition, first, rows, delivery])
    return [Run(*each) for each in found]
