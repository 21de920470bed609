"""Records that a receiver holds ahead of its calls; it notes their answers on a slip.

A receiver that receives and acknowledges one record after another, fast, gets many records in one
commit, and commits their answers with the next ones. What it does not hand out soon it gives back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kmq_spark.client.handles.at_end import at_end, is_ending, not_at_end
from kmq_spark.client.queues.delivery import Delivery, runs_of_deliveries
from kmq_spark.client.queues.open_slip import OpenSlip
from kmq_spark.errors import ClosedError, ConflictError, KmqError, NotFoundError
from kmq_storage.format.delivery_numbers import times_of
from kmq_storage.format.queue_entries import AcquireEntry, Run
from kmq_storage.format.slip_words import GROUPS, PLACES
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.queues import spans_of
from kmq_storage.log.state.queues.rows import NEVER
from kmq_storage.log.state.queues.slip import Slip
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.queues import handing
from kmq_storage.queues.slips import OwnPage
from kmq_storage.waking import Bell, Sleepers

#: About how long (seconds) a record waits at most in the hands of a busy receiver.
PATIENCE = 0.1
#: With a shorter lock (seconds) none is held ahead: the wait would take much of it, or all.
_LOCK_MIN = 10 * PATIENCE
#: How often, and how many seconds apart, `close` looks whether another thread is ready.
_WAITS, _WAIT = 100, 0.01
#: Seconds that threads wait for one that is acquiring records.
_SORTING = 1.0
#: A receiver is fast when it called so often, each time soon after the last.
_PROOF = 16
#: A pause of this many seconds ends the row of calls.
_PAUSE = 1.0
#: About the most bytes of one commit's records, unless a single call wants more: one handle's share
#: of memory, and of what others wait for.
_BYTES = 32 << 20


@dataclass(slots=True)
class Pace:
    """How many records to get at once: twice as many each time, while all are taken soon."""

    most: int
    #: Calls in a row that were answered.
    calls: int = 0
    #: How many the last call acquired at most, and how many it wanted.
    _size: int = 1
    _wanted: int = 1
    _last: float = 0.0

    def next_size(self, now: float, wanted: int) -> int:
        """How many to get now (seconds of a monotonic clock) for a call that wants some."""
        if now - self._last > _PAUSE:
            self.calls = 0
        self._last, self._wanted = now, wanted
        size = 2 * self._size if self.calls >= _PROOF else wanted
        most = self.most if wanted == 1 else min(self.most, GROUPS * wanted)
        self._size = max(min(size, most) // wanted, 1) * wanted
        return self._size

    def lower(self, rows: int) -> int:
        """How many to get instead, as no more than these may be held."""
        self._size = max(rows // self._wanted, 1) * self._wanted
        return self._size

    def slow_down(self, rows: int) -> None:
        """Count records that were not taken in time."""
        if rows:
            self._size = (self._size - rows) // 2  # it is doubled the next time
            if self._size < self._wanted:
                self.calls = 0


class Ahead:
    """What one handle of a queue holds ahead; any number of threads may use it."""

    def __init__(self, log: CommitLog, queue_id: bytes, most: int) -> None:
        self._log = log
        self._queue_id = queue_id
        self._pace = Pace(min(most, PLACES))
        self._ready: deque[Delivery] = deque()
        self._slip: OpenSlip | None = None
        self._page: OwnPage | None = None
        #: Held while a slip begins or ends.
        self._turning = threading.Lock()
        self._watch: threading.Thread | None = None
        self._bell = Bell()
        #: When the first of them expires, UTC us.
        self._expires = NEVER
        #: Whether a thread has acquired some, and not kept the rest for later yet.
        self._is_sorting = False
        #: Threads that wait for that.
        self._sleepers = Sleepers()
        #: Counts possible changes of what is ready: a receive that found nothing looks again.
        self.turns = 0

    def take(self, most: int) -> list[Delivery]:
        """Return at most `most` of the next records in hand."""
        ready = self._ready
        found: list[Delivery] = []
        try:  # `suppress` takes as long as the rest
            while len(found) < most:
                found.append(ready.popleft())
        except IndexError:
            pass
        now = self._log.now_us() if found else 0
        if found and found[-1].hold.until <= now:
            return []  # held for too long: other receivers have them
        if found and self._expires <= now:
            with suppress(IndexError):
                while True:
                    found.append(ready.popleft())
            self.give_back(runs_of_deliveries(found))  # expired ones are handed to nobody
            return []
        return found

    def has_some(self) -> bool:
        """Whether there are records in hand, soon if another thread has just got them."""
        if self._is_sorting and not self._sleepers.sleep(lambda: not self._is_sorting, _SORTING):
            self._is_sorting = False  # it was interrupted
        return bool(self._ready)

    def _sorted(self) -> None:
        self._is_sorting = False
        self._sleepers.wake()

    # --- getting ------------------------------------------------------------------------

    def acquire(
        self, queue: Queue, wanted: int, client: str, *, plain: bool
    ) -> tuple[AcquireEntry, OpenSlip | None] | None:
        """Acquire the next records, as many as the pace allows unless `plain`; None without any."""
        size = self._pace.next_size(self._log.environment.monotonic(), wanted)
        may_note = not plain and size > wanted and self._may_note(queue, wanted)
        if may_note and (rows := self._for_ahead(queue, size)) > wanted:
            size = self._pace.lower(rows)
            with self._turning:
                if not is_ending():  # it gives back what is held ahead
                    return self._turn(queue, size, client)
        self.settle()
        found = handing.try_acquire(self._log, queue, wanted, client)
        return None if found is None else (found, None)

    def _may_note(self, queue: Queue, wanted: int) -> bool:
        """Whether answers may be noted: nobody waits for single ones, and no record is urgent."""
        log, settings, own = self._log, queue.settings, queue.sources.get(queue.log_key)
        return (
            not (log.durable or log.is_remote)
            and (settings.order == "none" or (settings.order == "key" and wanted == 1))
            and settings.capacity is None
            and settings.lock_timeout >= _LOCK_MIN
            and not (own is not None and own.rows.priorities)
        )

    def _for_ahead(self, queue: Queue, size: int) -> int:
        """How many of the next records, at most `size`, may be held ahead.

        None of those that are handed out for the last time: if the process died now, they would be
        dead letters that nobody got. Nor a single one of a queue that goes by keys, where the
        others have its key: they can only be had after a commit.
        """
        spans, now = spans_of(self._log.state, queue), self._log.now_us()
        found = queue.take(spans, size, now, each_once=True)
        if queue.settings.order == "key" and self._slip is None and sum(r.rows for r in found) < 2:
            return 0
        if any(times_of(run.delivery) >= queue.deliveries_max for run in found):
            return 0
        fitting = _rows_within(self._log.state, found, _BYTES)
        return size if fitting is None else fitting

    def _turn(
        self, queue: Queue, size: int, client: str
    ) -> tuple[AcquireEntry, OpenSlip | None] | None:
        """Commit the noted answers and acquire more records, in one commit."""
        if self._ready or self._is_sorting:
            self.turns += 1  # another thread was faster; it may leave nothing in hand
            return None
        if self._slip is not None and queue.settings.order == "key":
            self._settle()  # the keys of what is noted are busy until then
            return None
        since = self._log.state.lsn
        before = () if self._slip is None else (self._slip.end(),)
        # After an interruption it is unknown what is noted there.
        page, self._page = self._page, None
        if page is None or page.is_used_up:
            page = OwnPage(self._log)
        number = page.next_round()
        slip = (page.id, number, page.boot)
        found = handing.try_acquire(self._log, queue, size, client, slip=slip, before=before)
        self._page = page
        if found is None:
            self._settle()
            return None
        begun = Slip(number, found.until, found.runs, boot=page.boot)
        self._slip, self._is_sorting = OpenSlip(self._log, queue, page, begun, since), True
        return found, self._slip

    def keep(self, slip: OpenSlip, records: list[Delivery], wanted: int) -> list[Delivery]:
        """Return the first of these records; the others are next, unless their slip has ended."""
        first, others = records[:wanted], records[wanted:]
        with self._turning:
            if slip is self._slip and not is_ending() and self._is_watched():
                queue = self._log.state.queues.by_id(self._queue_id)
                kept, others = _may_wait(queue, slip, others)
                self._expires = _first_expiry(queue, kept)
                self._ready.extend(kept)
        self.give_back(runs_of_deliveries(others))
        self._sorted()
        return first

    def _is_watched(self) -> bool:
        """Whether a thread ends the slip should it not be used up soon; starts one if it can."""
        if self._watch is None:
            watch = threading.Thread(target=self._look_after, name="kmq-queue", daemon=True)
            try:
                watch.start()
            except RuntimeError:  # the system has no more threads
                return False
            self._watch = watch
            at_end(self.close)
        return True

    def count(self) -> None:
        """Count a call that was answered."""
        self._pace.calls += 1

    # --- giving back --------------------------------------------------------------------

    def settle(self) -> None:
        """Commit the noted answers, and give back what was not handed out."""
        with self._turning:  # also to wait for another thread that does so
            self._settle()

    def _settle(self) -> None:
        slip = self._slip
        if slip is None:
            return
        try:
            self._log.commit([Unit((slip.end(),))])
        except (ConflictError, NotFoundError, ClosedError):
            self._page = None  # another process took over, or all is gone
        self._slip = None
        back = self.take(PLACES)
        self._pace.slow_down(len(back))
        self.give_back(runs_of_deliveries(back))
        self.turns += 1

    def give_back(self, runs: Sequence[Run]) -> None:
        """Free records that no receiver got, as if they had never been handed out."""
        handing.give_back(self._log, self._queue_id, runs)

    def refuse(self, runs: Sequence[Run]) -> None:
        """Give back what can't be read as a whole, and begin anew one by one."""
        self.settle()
        self._pace.calls = 0
        with suppress(KmqError):
            self.give_back(runs)
        self._sorted()

    def _look_after(self) -> None:
        """End a slip that is not used up soon; the thread ends when there is none."""
        seen = None
        while True:
            with self._turning:
                if self._slip is None:
                    self._watch = None
                    not_at_end(self.close)
                    return
            if seen is self._slip:
                with suppress(KmqError):  # else others take over when the lock ends
                    self.settle()
            seen = self._slip
            self._bell.wait(PATIENCE)

    def leave_to_parent(self) -> None:
        """In a forked child, give nothing back: the parent holds it."""
        not_at_end(self.close)

    def close(self) -> None:
        """Give back what is in hand; first, a thread that is just acquiring gives back its own."""
        with suppress(KmqError):  # else others take over when the lock ends
            self.settle()
        for _ in range(_WAITS):
            if not self._is_sorting:
                break
            self._log.environment.sleep(_WAIT)
        if self._slip is None and self._page is not None:
            self._page.discard()
            self._page = None
        self._bell.ring()


def _rows_within(state: StoreState, runs: Sequence[Run], most: int) -> int | None:
    """How many of the first records have at most so many bytes; None: all of them.

    As the manifest has it: within what was stored together, each counts as the average.
    """
    rows, left = 0, most
    for run in runs:
        topic = state.topic_by_id(run.topic_id)
        for row in () if topic is None else topic.index(run.partition).rows(run.first, run.end):
            some = min(run.end, row.end_offset) - max(run.first, row.base_offset)
            size = row.size * some // (row.end_offset - row.base_offset)
            if size > left:
                return rows + left * some // size
            rows, left = rows + some, left - size
    return None


def _may_wait(
    queue: Queue | None, slip: OpenSlip, records: list[Delivery]
) -> tuple[list[Delivery], list[Delivery]]:
    """Those that may be held ahead, and those on their last try: given back meanwhile."""
    most = 0 if queue is None else queue.deliveries_max
    if slip.tries < most:
        return records, []
    return (
        [each for each in records if each.delivery_count < most],
        [each for each in records if each.delivery_count >= most],
    )


def _first_expiry(queue: Queue | None, records: list[Delivery]) -> int:
    """When the first of some records is not to be handed out any more, UTC us."""
    own = None if queue is None else queue.sources.get(queue.log_key)
    if queue is None or own is None or not own.rows.expire:
        return NEVER
    runs = runs_of_deliveries(each for each in records if each.place[0] == queue.log_key)
    return min(map(own.first_expiry, runs), default=NEVER)
