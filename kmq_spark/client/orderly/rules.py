"""What follows from a listener's answer: RocketMQ's rules of orderly consumption.

Pure: an answer and counts in, a step out; a step and a process queue in, the next one out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum

from kmq_spark.client.handles.arguments import check_choice, checked_count, checked_seconds
from kmq_spark.client.orderly.process_queue import (
    HasOffset,
    QueueState,
    commit,
    consume_again,
    count_failure,
    discard,
    rollback,
)
from kmq_spark.client.records.record import Record

#: Seconds until a suspended queue goes on, at least and at most, whatever was asked.
_SUSPENDED_MIN, _SUSPENDED_MAX = 0.010, 30.0
#: The log warns of records that were handed out this often without success.
_TOLD_FROM = 16
_ENDS = ("dead_letter", "skip", "block")


class OrderlyStatus(Enum):
    """The answer of an orderly consumer's listener for the records that it got.

    - SUCCESS: they are finished; with auto_commit they are also committed.
    - SUSPEND_CURRENT_QUEUE_A_MOMENT: they come again after a moment; those behind them wait.
    - COMMIT: these and all before them are committed. Meant for `auto_commit=False`.
    - ROLLBACK: all since the last commit come again after a moment. Meant for `auto_commit=False`.

    With auto_commit, COMMIT and ROLLBACK count as SUCCESS.
    """

    SUCCESS = "success"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "suspend"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class OrderlyContext:
    """What a listener knows beside its records: where they are from, and two settings to change.

    Attributes:
        topic, partition: Where the records are from.
        reconsume_times: How often each of the records was handed out without success before.
        auto_commit: Whether this answer commits its records. May be set.
        suspend_current_queue_time: Seconds until suspended records come again. May be set.
    """

    __slots__ = ("_suspended", "auto_commit", "partition", "reconsume_times", "topic")

    def __init__(
        self, topic: str, partition: int, auto_commit: bool, reconsume_times: tuple[int, ...]
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.auto_commit = auto_commit
        self.reconsume_times = reconsume_times
        self._suspended = -1.0

    @property
    def suspend_current_queue_time(self) -> float:
        """Seconds until suspended records come again, from 0.01 to 30. May be set.

        -1 stands for the setting of the consumer.
        """
        return self._suspended

    @suspend_current_queue_time.setter
    def suspend_current_queue_time(self, seconds: float | timedelta) -> None:
        self._suspended = checked_seconds("suspend_current_queue_time", seconds, above=-math.inf)


Listener = Callable[[list[Record], OrderlyContext], OrderlyStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderlySettings:
    """The options of an orderly consumer."""

    #: Attempts after the first one; -1: without end.
    max_reconsume_times: int = -1
    #: What becomes of records whose attempts are used up: `dead_letter`, `skip` or `block`.
    when_exhausted: str = "dead_letter"
    #: Seconds.
    suspend_current_queue_time: float = 1.0
    consume_batch_max_size: int = 1
    auto_commit: bool = True

    def __post_init__(self) -> None:
        checked_count("max_reconsume_times", self.max_reconsume_times, lowest=-1)
        checked_count("consume_batch_max_size", self.consume_batch_max_size)
        check_choice("when_exhausted", self.when_exhausted, _ENDS)


class Step(Enum):
    """What becomes of records that a listener got."""

    COMMIT = "done with, like all before them"
    KEEP = "done with, and committed by a later answer"
    AGAIN = "they come again, after a moment"
    ROLLBACK = "all since the last commit come again, after a moment"
    BURY = "dead letters"
    SKIP = "passed over"


_BY_HAND = {
    OrderlyStatus.SUCCESS: Step.KEEP,
    OrderlyStatus.COMMIT: Step.COMMIT,
    OrderlyStatus.ROLLBACK: Step.ROLLBACK,
}


def decide(
    status: OrderlyStatus, counts: Sequence[int], settings: OrderlySettings, *, auto_commit: bool
) -> Step:
    """Decide what becomes of records that were handed out so often without success before."""
    if status is not OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
        return Step.COMMIT if auto_commit else _BY_HAND[status]
    if settings.when_exhausted == "block" or not _are_exhausted(counts, settings):
        return Step.AGAIN
    return Step.SKIP if settings.when_exhausted == "skip" else Step.BURY


def _are_exhausted(counts: Sequence[int], settings: OrderlySettings) -> bool:
    """While one of a batch has attempts left, all of it is tried again, and none is buried."""
    most = settings.max_reconsume_times
    return most >= 0 and all(count >= most for count in counts)


def settled(
    records: Sequence[HasOffset], state: QueueState, step: Step, *, auto_commit: bool
) -> QueueState:
    """Return the queue after this step of the records that its listener had."""
    state = replace(state, is_called=False)
    if state.is_dropped:
        return state
    if step in (Step.COMMIT, Step.KEEP):
        state = replace(state, succeeded=state.succeeded + len(records))
        return commit(state) if step is Step.COMMIT else state
    state = replace(state, failed=state.failed + len(records))
    if step is Step.ROLLBACK:
        return rollback(count_failure(state, records))
    if step is Step.AGAIN:
        return consume_again(count_failure(state, records), records)
    return commit(state) if auto_commit else discard(state, records)


def pauses(step: Step) -> bool:
    """Whether the records come again, after a moment."""
    return step in (Step.AGAIN, Step.ROLLBACK)


def pause_after(step: Step, asked: float, settings: OrderlySettings) -> float | None:
    """Seconds until the queue goes on; None: at once."""
    if not pauses(step):
        return None
    seconds = settings.suspend_current_queue_time if asked == -1 else asked
    return min(max(seconds, _SUSPENDED_MIN), _SUSPENDED_MAX)


def is_worth_a_warning(counts: Iterable[int]) -> bool:
    """Whether to warn of records that came this often without success; ever more rarely."""
    times = max(counts) + 1
    return times >= _TOLD_FROM and _is_told(times)


def is_told_of_letters(counts: Iterable[int], settings: OrderlySettings) -> bool:
    """Whether to warn that no letters are made of such records: at first, then ever more rarely."""
    return _is_told(max(counts) + 1 - settings.max_reconsume_times)


def _is_told(times: int) -> bool:
    return times & (times - 1) == 0
