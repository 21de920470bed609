"""The threads that hand records to the listener, and do what follows from its answers."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kmq_spark.client.handles.arguments import checked_flag
from kmq_spark.client.orderly.dead_letters import Burials
from kmq_spark.client.orderly.process_queue import ProcessQueue, QueueState, note_committed
from kmq_spark.client.orderly.reader import Place, Reader
from kmq_spark.client.orderly.rules import (
    Listener,
    OrderlyContext,
    OrderlySettings,
    OrderlyStatus,
    Step,
    decide,
    is_told_of_letters,
    is_worth_a_warning,
    pause_after,
    pauses,
    settled,
)
from kmq_spark.client.orderly.runs import Runs
from kmq_spark.client.records.record import Record
from kmq_spark.errors import KmqError
from kmq_storage.format.manifest import Key
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.waking import Flag

_LOGGER = logging.getLogger(__name__)

#: Seconds after which a queue whose listener was busy without a pause gives way to others.
_TURN_SECONDS = 60.0
_NEXT_TURN = 0.010
#: Seconds after which the log is asked whether a partition is still this member's.
_OWNER_SECONDS = 20.0
_LOOK_AGAIN = 1.0
#: A partition pauses when this many records wait, and goes on when so few are left.
WAITING_MAX, WAITING_LOW = 1_000, 500
_REASON_LENGTH_MAX = 1_000
#: The log warns when a listener keeps this many without its COMMIT, and at each doubling.
_KEPT = 1 << 14

Settle = Callable[[QueueState, Step], QueueState]


class PartitionQueue(ProcessQueue):
    """The process queue of a partition that this member reads; one thread fills it."""

    def __init__(self, log: CommitLog, place: Place, key: Key, begun: int) -> None:
        super().__init__(environment=log.environment)
        self.place = place
        #: Tells its topic from a later one of the same name.
        self.key = key
        #: The offset that it began at: the group's, while nothing was committed here.
        self.begun = begun
        #: When the partition was this member's for certain.
        self.owned_at = log.environment.monotonic()
        self.burials = Burials(log)
        #: Whether it is paused, and how many may wait when it goes on.
        self.is_full = False
        self.low = 0
        #: The last offset and the bytes of what was put at once, and all these bytes.
        self._lots: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def fill(self, records: Sequence[Record]) -> bool:
        """Add records that wait to be taken; True when a thread must be asked to take them."""
        if records:
            self._lots.append((records[-1].offset, size := _size(records)))
            self._bytes += size
        return self.put_messages(records)

    def look(self, room: int) -> bool:
        """Whether it changes between full and not; it is full when `room` has been used up."""
        waiting = self.state.waiting
        while self._lots and not (waiting and waiting[0].offset <= self._lots[0][0]):
            self._bytes -= self._lots.popleft()[1]
        was_full = self.is_full
        if was_full:
            self.is_full = len(waiting) > self.low
        elif waiting and (len(waiting) >= WAITING_MAX or self._bytes >= room):
            self.low, self.is_full = min(len(waiting) // 2, WAITING_LOW), True
            # What was taken before that told nobody.
            self.is_full = len(self.state.waiting) > self.low
        return self.is_full != was_full


class Listening:
    """Calls the listener, with one batch of a queue at a time."""

    def __init__(
        self,
        log: CommitLog,
        reader: Reader,
        listener: Listener,
        settings: OrderlySettings,
        closing: Flag,
    ) -> None:
        self._log = log
        self._reader = reader
        self._listener = listener
        self._settings = settings
        #: Set once nothing more may be handed out.
        self._closing = closing
        self._monotonic = log.environment.monotonic
        #: Held while offsets are committed: else one could go back.
        self.committing = threading.Lock()
        self._runs: Runs[PartitionQueue] = Runs(self._run, self._monotonic)
        self.close = self._runs.close

    def is_inside(self) -> bool:
        """Whether the caller is the listener."""
        return threading.current_thread() in self._runs.threads

    def put(self, queue: PartitionQueue, records: Sequence[Record]) -> None:
        """Queue these records for the listener, behind those that wait."""
        if queue.fill(records):
            self._runs.submit(queue)

    def _run(self, queue: PartitionQueue) -> None:
        """Hand out what waits, until there is nothing, it is suspended, or others have a turn."""
        began = self._monotonic()
        pause: float | None = None
        while pause is None and self._monotonic() - began <= _TURN_SECONDS:
            if self._closing.is_set():
                return
            if not self._is_owned(queue):
                pause = _LOOK_AGAIN  # unless the reader drops it
                break
            records = queue.take_messages(self._settings.consume_batch_max_size)
            if queue.is_full and len(queue.state.waiting) <= queue.low:
                self._reader.call()
            if not records:
                return
            pause = self._consume(queue, records)
            if queue.state.is_leaving or queue.state.is_dropped:
                self._reader.call()  # it waits for this
        self._runs.submit(queue, _NEXT_TURN if pause is None else pause)

    def _is_owned(self, queue: PartitionQueue) -> bool:
        """Whether no other member can have got the partition; after a long time the log is asked.

        So a process that was stopped finds out before its listener gets records of another's.
        """
        now = self._monotonic()
        if now - queue.owned_at > _OWNER_SECONDS and not queue.state.is_dropped:
            try:
                if not self._reader.owns(queue.key):
                    return False
            except KmqError as error:
                _LOGGER.debug("nobody can tell whose %s-%d is: %s", *queue.place, error)
                return False
            queue.owned_at = now
        return True

    def _consume(self, queue: PartitionQueue, records: list[Record]) -> float | None:
        """Call the listener and do what follows; return seconds to wait then (None: none)."""
        counts = queue.state.counts(records)
        context = OrderlyContext(*queue.place, self._settings.auto_commit, counts)
        status, reason = self._ask(records, context)
        auto_commit = context.auto_commit is True
        step = decide(status, counts, self._settings, auto_commit=auto_commit)
        settle: Settle = partial(settled, records, auto_commit=auto_commit)
        if step is Step.BURY:
            step = self._bury(queue, records, reason, settle)
        else:
            queue.change(lambda state: settle(state, step))
        if step is Step.SKIP or (pauses(step) and is_worth_a_warning(counts)):
            place = (*queue.place, records[0].offset)
            _LOGGER.warning("%s-%d, offset %d: %s (%s)", *place, step.value, reason)
        if step is Step.KEEP:
            self._tell_of_uncommitted(queue, len(records))
        return pause_after(step, context.suspend_current_queue_time, self._settings)

    def _tell_of_uncommitted(self, queue: PartitionQueue, added: int) -> None:
        """Warn of a listener that keeps very many records without its COMMIT."""
        kept = len(queue.state.consuming)
        if kept >= _KEPT and kept.bit_length() > (kept - added).bit_length():
            _LOGGER.warning(
                "%s-%d: %d records are in memory until the listener answers COMMIT",
                *queue.place,
                kept,
            )

    def _ask(self, records: list[Record], context: OrderlyContext) -> tuple[OrderlyStatus, str]:
        """Return the listener's answer, and the reason for dead letters."""
        suspended = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        try:
            answer: object = self._listener(records.copy(), context)
            checked_flag("auto_commit", context.auto_commit)
        except BaseException as error:  # its thread goes on: else the queue would stop for ever
            _LOGGER.warning("a listener of group %s failed", self._reader.group, exc_info=True)
            return suspended, _storable_text(error)
        if not isinstance(answer, OrderlyStatus):
            kind = type(answer).__name__
            _LOGGER.warning("a listener answers with an OrderlyStatus, not with %s", kind)
            return suspended, f"the listener answered with {kind}"
        if context.auto_commit and answer in (OrderlyStatus.COMMIT, OrderlyStatus.ROLLBACK):
            _LOGGER.warning("with auto_commit a listener's %s counts as SUCCESS", answer.name)
        done = "rolled it back" if answer is OrderlyStatus.ROLLBACK else "suspended it"
        return answer, f"the listener {done}"

    def _bury(
        self, queue: PartitionQueue, records: list[Record], reason: str, settle: Settle
    ) -> Step:
        """Commit dead letters and that their records are finished, in one commit; else try again.

        Without auto_commit, only the listener's COMMIT finishes the records.
        """
        counts = queue.state.counts(records)
        try:
            with self.committing:
                offset = -1
                if not queue.state.is_dropped:
                    letters = queue.burials.unit(self._reader.group, records, counts, reason)
                    offset = settle(queue.state, Step.BURY).offset
                    # Without an offset, nothing would be refused of who lost the partition.
                    at = self._inside(queue.key, max(offset, queue.begun))
                    self._reader.commit_with({queue.key: at}, letters)
                    queue.burials.unsure_below = 0
                queue.change(lambda state: note_committed(settle(state, Step.BURY), offset))
            return Step.BURY
        except Exception as error:
            if is_told_of_letters(counts, self._settings):
                _LOGGER.warning("%s-%d can't make dead letters: %s", *queue.place, error)
        queue.change(lambda state: settle(state, Step.AGAIN))
        return Step.AGAIN

    def _inside(self, key: Key, offset: int) -> int:
        """The offset, or the first of the log, which was trimmed up to there meanwhile."""
        topic = self._log.refresh().topic_by_id(key[0])
        return offset if topic is None else max(offset, topic.partition(key[1]).first)


def _size(records: Sequence[Record]) -> int:
    """About the bytes of the contents of some records, of which most are plain."""
    contents = tuple(zip(*records, strict=True))[3:7]  # keys, values, headers and properties
    return sum(
        sum(map(len, column)) if {*map(type, column)} == {bytes} else _bytes_in(column)
        for column in contents
        if any(column)
    )


def _bytes_in(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, Mapping):
        value = value.values()
    return sum(map(_bytes_in, value)) if isinstance(value, Iterable) else 8


def _storable_text(error: BaseException) -> str:
    """Return the text of an error, in a form that can be stored."""
    said = "".join(traceback.format_exception_only(error)).strip()
    return said[:_REASON_LENGTH_MAX].encode(errors="backslashreplace").decode()
