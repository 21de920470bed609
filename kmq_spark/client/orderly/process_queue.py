"""The process queue of a partition: what was read of it and is not finished.

Pure below: a `QueueState` is a value, and each transition makes another one of it. None loses a
record, takes a later one before an earlier one, or lets the offset to commit pass one that waits.
`ProcessQueue` is such a value behind a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from kmq_spark.client.handles.arguments import checked_count
from kmq_spark.errors import InvalidRequestError
from kmq_storage.environment import SYSTEM, Environment


class HasOffset(Protocol):
    """A record, as far as its queue cares."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""


Records = tuple[Any, ...]
_NO_COUNTS: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QueueState:
    """A process queue at one moment; records are sorted by offset."""

    #: Read, to be taken.
    waiting: Records = ()
    #: Taken, and neither committed nor put back.
    consuming: Records = ()
    #: How often a record was handed to the listener without success, by offset.
    reconsumed: Mapping[int, int] = field(default_factory=lambda: _NO_COUNTS)
    #: The next offset to commit, and the committed one; -1 before the first.
    offset: int = -1
    committed: int = -1
    #: Whether a thread takes from it, or will without being asked.
    is_scheduled: bool = False
    #: Whether the listener has records of it now.
    is_called: bool = False
    #: Whether nothing may be taken, since the partition is planned for another member.
    is_leaving: bool = False
    #: Whether the partition is another member's: nothing of this is committed any more.
    is_dropped: bool = False
    #: How many records the listener finished, and how many it got without success.
    succeeded: int = 0
    failed: int = 0
    #: When something was taken last, UTC microseconds.
    last_taken: int = 0

    @property
    def uncommitted(self) -> int | None:
        """The offset that is to be committed, or None."""
        return None if self.is_dropped or self.offset == self.committed else self.offset

    def counts(self, records: Iterable[HasOffset]) -> tuple[int, ...]:
        """Return how often the listener got each of these without success."""
        return tuple(self.reconsumed.get(each.offset, 0) for each in records)


def put(state: QueueState, records: Iterable[HasOffset]) -> QueueState:
    """Add these records to those that wait, unless they are here or finished."""
    if state.is_dropped:
        return state
    here = {each.offset for each in (*state.waiting, *state.consuming)}
    new = {r.offset: r for r in records if r.offset >= state.offset and r.offset not in here}
    return replace(state, waiting=_in_order(state.waiting, _sorted(new.values())))


def schedule(state: QueueState) -> QueueState:
    """Ask a thread to take what waits; the same state when none needs to be asked."""
    idle = state.waiting and not (state.is_scheduled or state.is_leaving or state.is_dropped)
    return replace(state, is_scheduled=True) if idle else state


def take(state: QueueState, most: int, now: int) -> tuple[QueueState, Records]:
    """Take the first records that wait; without any, no thread takes from it any more."""
    if state.is_leaving or state.is_dropped or not state.waiting:
        return replace(state, is_scheduled=False), ()
    taken = state.waiting[:most]
    return replace(
        state,
        waiting=state.waiting[most:],
        consuming=_in_order(state.consuming, taken),
        is_called=True,
        last_taken=now,
    ), taken


def commit(state: QueueState) -> QueueState:
    """Finish everything that was taken."""
    if not state.consuming:
        return state
    end = state.consuming[-1].offset + 1
    if state.waiting:  # a part of it may have been put back
        end = min(end, state.waiting[0].offset)
    done = discard(state, state.consuming)
    return replace(done, offset=max(state.offset, end))


def rollback(state: QueueState) -> QueueState:
    """Put back everything that was taken."""
    return replace(state, waiting=_in_order(state.consuming, state.waiting), consuming=())


def consume_again(state: QueueState, records: Iterable[HasOffset]) -> QueueState:
    """Put back those of these records that were taken."""
    chosen = {each.offset for each in records}
    back = tuple(each for each in state.consuming if each.offset in chosen)
    return replace(
        state,
        waiting=_in_order(back, state.waiting),
        consuming=tuple(each for each in state.consuming if each.offset not in chosen),
    )


def discard(state: QueueState, records: Iterable[HasOffset]) -> QueueState:
    """Drop these records, which were taken, without committing anything."""
    gone = {each.offset for each in records}
    left = tuple(each for each in state.consuming if each.offset not in gone)
    counts = {offset: n for offset, n in state.reconsumed.items() if offset not in gone}
    return replace(state, consuming=left, reconsumed=MappingProxyType(counts))


def count_failure(state: QueueState, records: Iterable[HasOffset]) -> QueueState:
    """Count once more that the listener got these records without success."""
    counts = dict(state.reconsumed)
    for each in records:
        counts[each.offset] = counts.get(each.offset, 0) + 1
    return replace(state, reconsumed=MappingProxyType(counts))


def drop(state: QueueState) -> QueueState:
    """Give the partition to another member: what the listener still has no longer counts."""
    return replace(state, waiting=(), consuming=(), is_dropped=True)


def leave(state: QueueState, is_leaving: bool) -> QueueState:
    """Let nothing more be taken, as the partition is planned for another member; or again."""
    return replace(state, is_leaving=is_leaving)


def note_committed(state: QueueState, offset: int) -> QueueState:
    """Tell that this offset was committed."""
    return replace(state, committed=offset)


def _in_order(some: Records, others: Records) -> Records:
    """Both together; nearly always all of `some` come before `others`."""
    both = (*some, *others)
    return both if not some or not others or some[-1].offset < others[0].offset else _sorted(both)


def _checked(records: Iterable[HasOffset]) -> Records:
    try:
        found = tuple(records)
        if all(isinstance(each.offset, int) for each in found):
            return found
    except (AttributeError, TypeError):
        pass
    raise InvalidRequestError("records must be records with an offset each", field="records")


def _sorted(records: Iterable[HasOffset]) -> Records:
    return tuple(sorted(records, key=lambda each: each.offset))


class ProcessQueue:
    """The records of one partition on their way through a listener; any thread may use it."""

    def __init__(self, *, environment: Environment = SYSTEM) -> None:
        self._now_us = environment.now_us
        self._changed = threading.Condition()
        self._state = QueueState()

    @property
    def state(self) -> QueueState:
        """The present state, as a value that doesn't change."""
        return self._state

    def change(self, transition: Callable[[QueueState], QueueState]) -> bool:
        """Go on to another state; True when a thread must be asked now to take what waits."""
        with self._changed:
            before, self._state = self._state, transition(self._state)
            self._changed.notify_all()
            return self._state.is_scheduled and not before.is_scheduled

    def wait_until_idle(self) -> None:
        """Return when the listener has no records of this partition."""
        with self._changed:
            self._changed.wait_for(lambda: not self._state.is_called)

    def put_messages(self, records: Iterable[HasOffset]) -> bool:
        """Add records that wait to be taken; True when a thread must be asked to take them."""
        new = _checked(records)
        return self.change(lambda state: schedule(put(state, new)))

    def take_messages(self, batch_size: int) -> list[Any]:
        """Take the records with the lowest offsets, in order, at most `batch_size` of them."""
        checked_count("batch_size", batch_size)
        with self._changed:
            self._state, taken = take(self._state, batch_size, self._now_us())
        return list(taken)

    def commit(self) -> int:
        """Finish everything that was taken; return the offset to commit, or -1 if nothing was."""
        with self._changed:
            some = self._state.consuming
            self.change(lambda state: replace(commit(state), is_called=False))
            return self._state.offset if some else -1

    def rollback(self) -> None:
        """Put back everything that was taken."""
        self.change(lambda state: replace(rollback(state), is_called=False))

    def make_message_to_consume_again(self, records: Iterable[HasOffset]) -> None:
        """Put back those of these records that were taken."""
        again = _checked(records)
        self.change(lambda state: replace(consume_again(state, again), is_called=False))
