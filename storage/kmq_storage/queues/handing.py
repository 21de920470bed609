"""Handing out records of a queue: acquire them, answer for them, and wait for more.

This prepares the commits. `log.state.queues.queue` decides about them when they are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from kmq_storage import limits
from kmq_storage.errors import ConflictError, KmqError, LeaseExpiredError
from kmq_storage.format.entries import Entry
from kmq_storage.format.queue_entries import (
    RECALL,
    RELEASE,
    AcquireEntry,
    AnswerEntry,
    Run,
    SealedSlipAcquireEntry,
)
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.gone_topics import deleted
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.store_state import StoreState

#: How often to try to give back what is left, when some of it is lost meanwhile.
_ATTEMPTS = 3


def live_queue(state: StoreState, queue_id: bytes, name: str) -> Queue:
    """The queue with this id; NotFoundError when it was deleted."""
    queue = state.queues.by_id(queue_id)
    if queue is None:
        raise deleted("queue", name)
    return queue


def id_in_store(log: CommitLog, own_id: bytes) -> bytes:
    """Mix the id of a queue or topic with its store's, as clones and copies have the same ids.

    Mixed once more, it is the id again.
    """
    mixed = int.from_bytes(own_id, "big") ^ log.identity.store_id.int
    return mixed.to_bytes(16, "big")


def try_acquire(
    log: CommitLog,
    queue: Queue,
    most: int,
    client: str,
    *,
    slip: tuple[bytes, int, int] | None = None,
    before: Sequence[Entry] = (),
) -> AcquireEntry | None:
    """Lock the first deliverable records, at most `most`; None when there are none.

    `slip`: the id of the receiver's slip, the number of its use, and the boot of the machine.
    `before`: entries that come before the delivery in the same commit.
    """
    now = log.now_us()
    if not queue.take(spans_of(log.state, queue), 1, now):
        forget_expired(log, queue, client)
        return None
    until = now + round(queue.settings.lock_timeout * 1e6)
    facts = (queue.id, now, until, min(most, limits.RECEIVED_MAX), client)
    entry = AcquireEntry(*facts) if slip is None else SealedSlipAcquireEntry(*facts, (), *slip)
    try:
        commit = log.commit([Unit((*before, entry))], durable=False)
    except ConflictError:
        return None  # other receivers were faster
    acquired = commit.entries[-1]
    assert isinstance(acquired, AcquireEntry), "as it was handed in"
    if log.durable:
        with when_interrupted(lambda: give_back(log, queue.id, acquired.runs)):
            log.sync(commit)
    return acquired


@contextmanager
def when_interrupted(undo: Callable[[], object]) -> Iterator[None]:
    """After Ctrl-C in the block, give back what it was about to hand out, as `undo` does."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        with suppress(KmqError):  # else it comes again when its lock ends
            undo()
        raise


def give_back(log: CommitLog, queue_id: bytes, runs: Sequence[Run]) -> None:
    """Free records that no receiver got, as if they had never been handed out."""
    for _ in range(_ATTEMPTS if runs else 0):
        queue = log.written_state().queues.by_id(queue_id)
        held = [] if queue is None else _still_held(queue, runs, log.now_us())
        if queue is None or not held:
            return
        with suppress(LeaseExpiredError):  # of one record: the others don't wait for it
            log.commit([Unit((answer(log, queue, RELEASE, held),))])
            return


def forget_expired(log: CommitLog, queue: Queue, client: str) -> bool:
    """Remove expired records without a delivery, so that they take no room; False if none are."""
    now = log.now_us()
    if not queue.has_expired(now):
        return False
    with suppress(ConflictError):  # another process did
        log.commit([Unit((AcquireEntry(queue.id, now, now, 0, client),))], durable=False)
    log.refresh()
    return True


def wait_for_more(
    log: CommitLog, queue: Queue, lsn: int, seconds: float, stopped: Callable[[], bool]
) -> None:
    """Sleep until a commit after LSN `lsn`, or until a record becomes deliverable by itself."""
    now = log.now_us()
    due = (queue.next_after(now) - now) / 1e6
    log.wait(lsn, min(seconds, max(due, 0.0) + 1e-4, limits.CLOCK_RECHECK), stopped)


def answer(
    log: CommitLog, queue: Queue, what: int, runs: Iterable[Run], at: int = 0, *, reason: str = ""
) -> AnswerEntry:
    """The entry for an answer, to be committed alone or with other entries."""
    return AnswerEntry(queue.id, what, log.now_us(), at, tuple(runs), reason=reason)


def _still_held(queue: Queue, runs: Iterable[Run], now: int) -> list[Run]:
    """The records of some runs that their deliveries still hold at `now` (UTC us)."""
    found: list[Run] = []
    for run in runs:
        source = queue.sources.get(run.key)
        found += [] if source is None else source.held_of(run, now)
    return found


def recall(log: CommitLog, queue: Queue, offset: int) -> bool:
    """Take back a record that was sent to a queue; False when it was already delivered."""
    run = Run(*queue.log_key, offset, 1, 0)
    try:
        log.commit([Unit((answer(log, queue, RECALL, [run]),))])
    except ConflictError:
        return False
    return True


def merged(runs: Iterable[tuple[bytes, int, int, int, int]]) -> list[Run]:
    """Runs in order, with neighbours and overlapping ones joined."""
    found: list[Run] = []
    last, begin, end = None, 0, -1
    for topic_id, partition, first, rows, delivery in sorted(runs):
        of = (topic_id, partition, delivery)
        if of == last and first <= end:
            end = max(end, first + rows)
            continue
        if last is not None:
            found.append(Run(*last[:2], begin, end - begin, last[2]))
        last, begin, end = of, first, first + rows
    if last is not None:
        found.append(Run(*last[:2], begin, end - begin, last[2]))
    return found
