"""A queue as a receiver uses it: receive records, answer for them, and look at its state."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from kmq_spark.client.handles.apart import closes_apart
from kmq_spark.client.handles.arguments import (
    checked_count,
    checked_stored_seconds,
    seconds_to_wait,
)
from kmq_spark.client.handles.resource import Resource, Stopped
from kmq_spark.client.queues.ahead import Ahead
from kmq_spark.client.queues.dead_letters import bury, bury_all
from kmq_spark.client.queues.delivery import Delivery, Hold, check_own, runs_of_deliveries, several
from kmq_spark.client.queues.open_slip import OpenSlip
from kmq_spark.client.queues.reading import (
    Held,
    deliveries_of,
    missing_of,
    of_one_schema,
    places_of,
    runs_of_table,
    slices_of,
    table_of_slices,
)
from kmq_spark.client.queues.reasons import TOO_OFTEN, Reason, brief, told
from kmq_spark.client.queues.recalling import recall
from kmq_spark.client.queues.redriving import move_back
from kmq_spark.client.queues.table import state_table
from kmq_spark.client.records.metadata import RecordMetadata
from kmq_spark.errors import ClosedError, InvalidRequestError, KmqError
from kmq_storage.environment import this_process
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXTEND,
    RELEASE,
    RETRY,
    AcquireEntry,
    AnswerEntry,
    Run,
)
from kmq_storage.format.slip_words import PLACES
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.queues.late_answers import OF_ANOTHER, names_in, too_late
from kmq_storage.log.state.queues.queue import Queue as StoredQueue
from kmq_storage.model import QueueStats
from kmq_storage.names import check_name
from kmq_storage.objects.fork import generation, reopen_in_child
from kmq_storage.queues import administration, handing
from kmq_storage.queues.looking import look_ahead
from kmq_storage.queues.lost_records import finish_missing


class Queue(Resource):
    """One queue to receive from; any number of threads and processes may use it at once."""

    def __init__(self, log: CommitLog, name: str, prefetch: int = PLACES) -> None:
        self._log = log
        self.name = check_name("queue", name, is_new=False)
        self._id = log.refresh().queue(name).id
        self._id_in_store = handing.id_in_store(log, self._id)
        self._prefetch = checked_count("prefetch", prefetch)
        self._ahead = Ahead(log, self._id, self._prefetch)
        self._reader = ChunkReader(log.files)
        self._reading = threading.Lock()
        self._closed = False
        self._kind: type[Delivery] = Delivery
        self._awaited: Any = None
        reopen_in_child(self._after_fork)

    def _after_fork(self) -> None:
        """Read anew in the child; what the parent received stays the parent's."""
        self._reading = threading.Lock()
        self._reader = ChunkReader(self._log.files)
        self._ahead.leave_to_parent()
        self._ahead = Ahead(self._log, self._id, self._prefetch)

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    # --- receiving ----------------------------------------------------------------------

    def receive(self, max_records: int = 1, timeout: float | None = 0.0) -> list[Delivery]:
        """Receive records that no other receiver gets until they are answered, or their lock ends.

        At most `max_records`, or a million, as soon as there are some. The list is empty after
        `timeout` seconds without any (None waits for ever). DataLossError, once, where a repair cut
        records out; call again to go on.
        """
        return self._receive(max_records, timeout)

    def _receive(
        self, max_records: int, timeout: float | None, stopped: Stopped = lambda: False
    ) -> list[Delivery]:
        """The same; a wait that was stopped ends with no records."""
        if type(max_records) is not int or max_records != 1:
            max_records = checked_count("max_records", max_records)
        self._check_open()
        deadline = None
        while not (ready := self._ahead.take(max_records)):
            deadline = self._deadline(timeout) if deadline is None else deadline
            if found := self._acquire(max_records, deadline, stopped=stopped):
                if held := self._received(*found, max_records):
                    return held
            elif found is None:
                return []
        self._ahead.count()
        return ready

    def _deadline(self, timeout: float | None) -> float:
        return self._log.environment.monotonic() + seconds_to_wait(timeout)

    def _received(
        self, acquired: AcquireEntry, slip: OpenSlip | None, wanted: int
    ) -> list[Delivery]:
        """Return the deliveries that a call hands out of what it acquired."""
        try:
            self._log.refresh()
            held = self._deliveries(acquired.runs, acquired.until, slip)
            if len(held) < sum(run.rows for run in acquired.runs):
                self._forget_missing(acquired.runs, {each.place for each in held})
        except BaseException as error:
            if slip is not None:  # readable ones come again, one by one
                self._ahead.refuse(acquired.runs)
            elif not isinstance(error, Exception):  # Ctrl-C: no receiver got them
                with suppress(KmqError):
                    self._ahead.give_back(acquired.runs)
            raise
        if slip is not None:
            held = self._ahead.keep(slip, held, wanted)
        self._ahead.count()
        return held

    def receive_arrow(self, max_rows: int = 65_536, timeout: float | None = 0.0) -> pa.Table:
        """Receive the same as a table with one more column, `_delivery`, for `ack`.

        It has no rows when nothing came. The records of one table come from topics with the same
        columns.
        """
        return self._receive_arrow(max_rows, timeout)

    def _receive_arrow(
        self, max_rows: int, timeout: float | None, stopped: Stopped = lambda: False
    ) -> pa.Table:
        """The same; a wait that was stopped ends with no rows."""
        max_rows = checked_count("max_rows", max_rows)
        deadline = self._deadline(timeout)
        self._ahead.settle()
        slices: list[Held] = []
        acquire = partial(self._acquire, plain=True, stopped=stopped)
        while not slices and (some := acquire(max_rows, deadline)):
            with handing.when_interrupted(partial(self._ahead.give_back, some[0].runs)):
                slices = self._slices(some[0].runs)
        return table_of_slices(self._log, self._id, slices)

    def _slices(self, found: Sequence[Run]) -> list[Held]:
        """Return those of the acquired records that fit into one table; the others are released."""
        self._log.refresh()
        runs, others = of_one_schema(self._log, found)
        self._answer(RELEASE, others)
        with self._reading:
            slices = slices_of(self._log, self._reader, runs)
        if sum(part.rows for _, part in slices) < sum(run.rows for run in runs):
            places = (((of[0][:2], o) for o in part.offsets().tolist()) for of, part in slices)
            self._forget_missing(runs, {place for some in places for place in some})
        return slices

    def _forget_missing(self, runs: Sequence[Run], there: set[tuple[Key, int]]) -> None:
        """Finish records of which compaction left none; DataLossError for those that were lost."""
        missing = missing_of(runs, there)
        with self._reading:
            lost = finish_missing(self._log, self._reader, self._live(), missing)
        if lost is not None:  # this call hands out none of the others
            self._ahead.refuse(missing_of(runs, places_of(missing)))
            raise lost

    def _deliveries(
        self,
        runs: Sequence[Run],
        until: int,
        slip: OpenSlip | None = None,
        *,
        name: str | None = None,
    ) -> list[Delivery]:
        hold = Hold(self, self._id_in_store, until, generation(), slip)
        with self._reading:
            return deliveries_of(self._log, self._reader, runs, name or self.name, hold)

    def _acquire(
        self, most: int, deadline: float, *, plain: bool = False, stopped: Stopped = lambda: False
    ) -> tuple[AcquireEntry, OpenSlip | None] | tuple[()] | None:
        """Hold records, read after a refresh; None when none come, () when some are in hand."""
        log, now = self._log, self._log.environment.monotonic
        check_writable(log.files)
        while plain or not self._ahead.has_some():
            turns = self._ahead.turns
            queue = self._live()
            self._bury_all(queue)
            with self._reading:
                look_ahead(log, self._reader, queue, most)
            lsn = log.state.lsn
            found = self._ahead.acquire(queue, most, this_process(), plain=plain)
            if found is not None:
                return found
            if self._ahead.turns != turns or (not plain and self._ahead.has_some()):
                continue
            left = deadline - now()
            if left <= 0:
                return None
            handing.wait_for_more(log, queue, lsn, left, lambda: self._closed or stopped())
            if stopped():
                return None
        return ()

    def _live(self) -> StoredQueue:
        """The queue as it is now."""
        self._check_open()
        return handing.live_queue(self._log.refresh(), self._id, self.name)

    # --- answering ----------------------------------------------------------------------

    def ack(self, deliveries: Delivery | Iterable[Delivery] | pa.Table | pa.RecordBatch) -> None:
        """Acknowledge deliveries in one commit: one, several, or any rows of `receive_arrow`.

        LeaseExpiredError when one of them comes too late; then none is acknowledged, and
        `context["late"]` of the error names those that are late.
        """
        if isinstance(deliveries, pa.Table | pa.RecordBatch):
            self._check_open()
            self._answer(ACK, runs_of_table(self._id_in_store, deliveries))
            return
        records = several(deliveries)
        if not self._noted(records):
            self._answer(ACK, runs_of_deliveries(self._checked(records)))

    def _noted(self, records: Sequence[Delivery]) -> bool:
        """Whether it was noted that these are acknowledged, which then takes no commit."""
        notes = records[0].hold.notes if records else None
        if notes is None or self._closed:
            return False
        here = (notes, self._id_in_store, generation())
        for hold in {each.hold for each in records}:
            if (hold.notes, hold.id_in_store, hold.generation) != here:
                return False
        return notes.note([each.place for each in records])

    def _ack_entry(self, deliveries: Iterable[Delivery]) -> AnswerEntry:
        """Return the entry with which a transaction acknowledges these."""
        runs = runs_of_deliveries(self._checked(deliveries))
        return handing.answer(self._log, self._live(), ACK, runs)

    def nack(
        self, delivery: Delivery, delay: float | timedelta | None = None, reason: Reason = None
    ) -> None:
        """Have a record handed out again; see `Delivery.nack`."""
        why = told(reason, TOO_OFTEN)
        seconds = None if delay is None else checked_stored_seconds("delay", delay)
        self._checked([delivery])
        queue = self._live()
        if delivery.delivery_count >= queue.deliveries_max:
            bury(self._log, queue, [delivery], DEAD, why)
            return
        pause = queue.settings.pause_after(delivery.delivery_count) if seconds is None else seconds
        self._answer(RETRY, [delivery.run], self._after(pause), brief(reason))

    def reject(self, delivery: Delivery, reason: Reason = None) -> None:
        """Make a record a dead letter at once; see `Delivery.reject`."""
        self._checked([delivery])
        bury(self._log, self._live(), [delivery], DEAD, told(reason, "rejected"))

    def extend(self, delivery: Delivery, seconds: float | timedelta) -> None:
        """Hold a record until `seconds` from now."""
        until = self._after(checked_stored_seconds("seconds", seconds, above=0))
        self._checked([delivery])
        self._answer(EXTEND, [delivery.run], until)
        delivery.hold.extended[delivery.place] = until

    def _after(self, seconds: float) -> int:
        """Return the instant `seconds` from now, by the log's time."""
        self._log.refresh()
        return self._log.now_us() + round(seconds * 1e6)

    def _checked(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Return deliveries that this handle may answer for; an error names one that it may not."""
        self._check_open()
        checked = several(deliveries)
        firsts = {each.hold: each for each in reversed(checked)}  # others are as the first is
        for hold, each in firsts.items():
            if each.queue != self.name:
                raise InvalidRequestError(
                    f"the delivery is one of queue {each.queue}, not of {self.name}",
                    queue=each.queue,
                )
            if hold.id_in_store != self._id_in_store:
                raise too_late(self.name, [each.run], names_in(self._log.state), OF_ANOTHER)
            check_own(hold.generation)
        # In an order that doesn't depend on addresses.
        for notes in filter(None, dict.fromkeys(hold.notes for hold in firsts)):
            notes.answer_by_commit([each.place for each in checked if each.hold.notes is notes])
        return checked

    def _answer(self, what: int, runs: Sequence[Run], at: int = 0, reason: str = "") -> None:
        if runs:
            entry = handing.answer(self._log, self._live(), what, runs, at, reason=reason)
            self._log.commit([Unit((entry,))])

    def _give_back(self, received: list[Delivery] | pa.Table) -> None:
        """Free records that no receiver got after all, as if they had never been handed out."""
        with suppress(KmqError):  # else they come again when their lock ends
            if isinstance(received, pa.Table):
                self._ahead.give_back(runs_of_table(self._id_in_store, received))
            elif received:
                self._ahead.give_back(runs_of_deliveries(received))

    # --- dead letters -------------------------------------------------------------------

    def _bury_all(self, queue: StoredQueue) -> None:
        """Bury what was handed out too often: here, and in queues whose dead letters come here."""
        if not self._log.files.read_only:
            bury_all(self._log, queue, lambda name, runs: self._deliveries(runs, 0, name=name))

    def redrive(self, max_records: int | None = None) -> int:
        """Move the queue's dead letters back to it, in order, as new records; return how many.

        As many are moved as its capacity has room for, and `max_records` at most. QueueFullError
        when it has room for none.
        """
        if max_records is not None:
            max_records = checked_count("max_records", max_records)
        queue = self._live()
        check_writable(self._log.files)
        if self._log.state.queues.find(queue.dead_letter) is None:
            return 0
        with Queue(self._log, queue.dead_letter) as letters:
            return move_back(letters, queue, max_records)

    # --- what is where ------------------------------------------------------------------

    def stats(self) -> QueueStats:
        """Return how many records are ready, locked and delayed, and what became of the others."""
        self._ahead.settle()
        self._bury_all(self._live())
        return administration.stats_of(self._log, self._live())

    def state(self) -> pa.Table:
        """Return a table with a row per unfinished record.

        Columns: `topic`, `partition`, `offset`, `state` (ready, locked or delayed),
        `delivery_count`, `available_at` (when its lock ends, or it is due; null: now),
        `expires_at`, `priority`.
        """
        self._ahead.settle()
        return state_table(self._log, self._live())

    def recall(self, metadata: RecordMetadata) -> bool:
        """Take back a record that was sent to this queue; False when a receiver had it already.

        Its `uniq` stays taken until the window of the queue ends.
        """
        if not isinstance(metadata, RecordMetadata) or metadata.queue != self.name:
            raise InvalidRequestError(
                f"recall takes the metadata of a record that was sent to queue {self.name}, "
                f"not {metadata!r}",
                queue=self.name,
            )
        self._ahead.settle()
        return recall(self._log, self._live(), metadata)

    # --- lifetime -----------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the queue is closed")

    @closes_apart
    def close(self) -> None:
        """Close this handle; records that it holds come again when their locks end."""
        if not self._closed:
            self._closed = True
            self._ahead.close()
            self._wake()

    def _wake(self) -> None:
        """Wake a waiting receive, to check whether it was stopped."""
        self._log.wake_waiters()
