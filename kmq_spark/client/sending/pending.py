"""Sends that wait for their commit: user threads add them, a committing thread takes them."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from queue import SimpleQueue

from kmq_spark.client import compiled
from kmq_spark.client.encoding.waiting_extras import WaitingExtras
from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.records.metadata import RecordMetadata
from kmq_spark.client.records.structured import TypedValue
from kmq_spark.client.records.values import size_among
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.client.sending.plain_adding import PlainAdding
from kmq_spark.client.sending.sends import OnDelivery, RowSends, Sends
from kmq_spark.errors import ClosedError, IllegalStateError, KmqError
from kmq_storage.environment import Environment
from kmq_storage.names import check_name, queue_of_log
from kmq_storage.waking import Bell, Sleepers

#: Memory that a record takes besides its bytes.
_ROW_BYTES = 64
#: How much more than the most may be pending, so that records of many topics still gather.
_EXCESS_SHARE = 8
#: When the last commit finished this long ago, the producer is not in the middle of a stream.
_CALM_NS = 1_000_000
#: A caller this far ahead lets the worker catch up for a moment: records that have left the
#: processor's caches take both threads three times as long.
_AHEAD_BYTES, _CATCH_UP_SECONDS = 2_097_152, 0.002
#: The worker leaves sends that a caller will probably commit alone for this long.
_LEFT_SECONDS = 0.005


class Pending:
    """Pending sends in the order of the calls, bounded in bytes.

    A signal handler may raise in a user's thread at any call. So fields that must agree change by
    plain stores without a call between, and a bell rings before new sends are visible, or again.
    """

    def __init__(
        self, environment: Environment, *, linger: float, batch_bytes: int, max_bytes: int
    ) -> None:
        self._now_ns = environment.now_ns
        self._monotonic = environment.monotonic
        self._linger = linger
        self._batch_bytes = batch_bytes
        self._max_bytes = self._room = max_bytes
        self._lock = compiled.new_lock()
        adding = (compiled.adding.Adding if compiled.is_there else PlainAdding)(self, _ROW_BYTES)
        #: For a name that a user gave, and for that of a queue's own log.
        self.add, self.add_to_queue = adding.add, adding.add_to_queue
        #: User threads that wait for room or for a flush.
        self._sleepers = Sleepers()
        #: Per topic, the records sent one by one that still gather.
        self._open: dict[str, RowSends] = {}
        self._waiting: deque[Sends] = deque()
        #: The open transaction; it collects everything that is sent until its end.
        self._transaction: Gathered | None = None
        #: Sends that were taken for a commit and are not finished, in order.
        self._taken: dict[Sends, None] = {}
        #: The sends that finished last, and when.
        self._last: tuple[Sends | None, int] = (None, 0)
        #: Tries to commit in the calling thread; set by the owner that commits.
        self.commit_here: Callable[[], bool] = lambda: False
        self._arrived = Bell()
        #: Rung to end lingering: enough bytes have gathered, or a caller waits.
        self._urgent = Bell()
        #: The user's call that is committing what it took; the worker waits until it ends.
        self.caller: object | None = None
        self.worker_waits = False
        self._turn: SimpleQueue[None] = SimpleQueue()
        self.give_turn = self._turn.put  # one call of C
        #: Whether that call was interrupted; the worker then finds out whether it committed.
        self.abandoned = False
        self._closed = False
        self._refusal: Callable[[], KmqError] = _is_closed
        #: The threads that commit. They must not wait for room, because only they make room.
        self.workers: set[threading.Thread] = set()

    def add_any(
        self,
        topic: str,
        value: bytes | TypedValue | None,
        key: bytes | None,
        extras: WaitingExtras | None,
        on_delivery: OnDelivery | None,
    ) -> SendFuture[RecordMetadata]:
        """Add one record; waits for room while too many bytes are pending."""
        now, more = self._now_ns(), _ROW_BYTES
        if extras is not None:
            more += len(extras) if isinstance(extras, bytes) else size_among(extras)
        # Calls are made before the lock where possible: a signal can raise only after a call.
        with self._lock:  # no signal can raise between taking the lock and entering the block
            try:
                rows = self._open[topic] if topic in self._open else self._open_rows(topic)
            except TypeError:
                _checked(topic)  # an unhashable topic, such as a list, gets kmq's own error
                raise
            values = rows.values
            index, size = len(values), rows.size
            try:
                values.append(value)
                rows.keys.append(key)
                rows.times.append(now)
                if extras is not None:
                    rows.has_plain = rows.has_plain or not isinstance(extras, bytes)
                    rows.extras[index] = extras
                if on_delivery is not None:
                    rows.user_callbacks.append((index, on_delivery))
            except BaseException:  # raised by a signal handler: keep the other records whole
                rows.take_back(index)
                raise
            size += more + (0 if key is None else len(key))
            rows.size = size = size + (0 if value is None else len(value))
        if size >= rows.alarm:
            self._when_enough(rows)
        future: SendFuture[RecordMetadata] = SendFuture((rows, index))
        return future

    def _open_rows(self, topic: str) -> RowSends:
        self.check_open()
        rows = RowSends(_checked(topic), self.expedite)
        if self._transaction is not None:
            rows.alarm = min(self._batch_bytes, self._transaction.share(len(self._open)))
            self._transaction.add(rows)
            self._open[topic] = rows
            return rows
        rows.alarm = min(self._batch_bytes, self._share(len(self._open) + 1))
        if self._linger:  # without linger, the producer decides who commits and wakes the worker
            self._arrived.ring()  # the worker looks once this lock is free
        self._open[topic] = rows
        self._waiting.append(rows)
        return rows

    def _share(self, topics: int) -> int:
        """How many of the bytes that may still gather each of this many topics may take.

        Summed only when the topics have doubled: for each new topic it took a quarter of the time.
        All together may take a little too much: else, where senders are ahead, a hundred topics
        would be full every few records, and committed as so many batches.
        """
        if not topics & (topics - 1):
            self._room = max(self._max_bytes - self._bytes(), 0)
        return max(self._room, self._max_bytes // _EXCESS_SHARE) // topics

    def check_open(self) -> None:
        """Raise the reason why nothing more is accepted, if there is one."""
        if self._closed:
            raise self._refusal()

    def _when_enough(self, rows: RowSends) -> None:
        """Commit these full rows; later records gather in new ones, so memory is reused soon."""
        with self._lock:
            if self._open.get(rows.topic) is rows:
                del self._open[rows.topic]
                self._count(rows)
            rows.alarm = sys.maxsize
        if self.in_transaction:
            self.stage_excess()
        else:
            self.call_worker()
            self._wait_for_room()

    def _count(self, sends: Sends | None) -> None:
        if self._transaction is not None and sends is not None:
            self._transaction.count(sends)

    def put(self, sends: Sends) -> None:
        """Add a batch behind all earlier sends; the caller then decides which thread commits it."""
        with self._lock:
            self.check_open()
            # Close the topic's open rows, so that later single records go behind the batch.
            self._count(self._open.pop(sends.topic, None))
            if self._transaction is None:
                self._waiting.append(sends)
            else:
                self._transaction.add(sends)
                self._transaction.count(sends)

    def begin(self, transaction: Gathered) -> None:
        """Open a transaction: all later sends belong to it until its end."""
        with self._lock:
            self.check_open()
            if self._transaction is not None:
                raise IllegalStateError(
                    "a transaction of this producer is open already: commit or abort it first, or "
                    "use one producer for each"
                )
            self._open.clear()  # earlier sends are committed before the transaction
            self._transaction = transaction

    def end(self, transaction: Gathered, failure: KmqError | None = None) -> bool:
        """Queue a transaction for its commit behind earlier sends, or to end with a `failure`.

        Returns False when it had ended already. The caller must wait for it or call the worker.
        """
        with transaction.staging, self._lock:
            if self._transaction is not transaction:
                return False
            transaction.end(failure)
            self._open.clear()
            self._transaction = None
            self._waiting.append(transaction)
            return True

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open: sends then wait for its end, not for the worker."""
        return self._transaction is not None

    def stage_excess(self) -> None:
        """Move sends of the open transaction into files when they take too much memory."""
        transaction = self._transaction
        if transaction is not None and transaction.is_too_much:
            transaction.stage(lambda: self._take_waiting_of(transaction))

    def _take_waiting_of(self, transaction: Gathered) -> list[Sends]:
        with self._lock:
            if not (transaction.is_open and transaction.is_too_much):
                return []
            self._open.clear()
            return transaction.take_waiting()

    def call_worker_for(self, sends: Sends) -> None:
        """Leave a batch to the worker; waits for room while too many bytes are pending."""
        with self._lock:
            waiting = self._waiting
            gathered = sum(sends.size for sends in waiting)
        self.call_worker(now=gathered >= self._batch_bytes or not self._linger)
        if gathered > _AHEAD_BYTES:
            self._sleepers.sleep(lambda: self._waiting is not waiting, _CATCH_UP_SECONDS)
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        if threading.current_thread() in self.workers:
            return  # a callback that sends would wait for its own thread
        while not self._sleepers.sleep(self._has_room):
            pass

    def _has_room(self) -> bool:
        with self._lock:
            has_room = self._bytes() <= self._max_bytes or self._closed
        if not has_room:
            self.call_worker()
        return has_room

    def _bytes(self) -> int:
        return sum(sends.size for sends in chain(self._waiting, self._taken))

    def __len__(self) -> int:
        with self._lock:
            alone = sum(map(len, chain(self._waiting, self._taken)))
            return alone + len(self._transaction or ())

    def expedite(self, *, helping: bool = False) -> None:
        """End lingering because a caller waits; a `helping` caller commits in its own thread."""
        if helping:
            self.check_waits()
        if not (helping and self.commit_here()):
            self.call_worker()

    def check_waits(self) -> None:
        """IllegalStateError in a callback: its thread would wait for a commit that it must make."""
        if threading.current_thread() in self.workers:
            raise IllegalStateError("a callback can't wait for a commit: its own thread commits")

    def call_worker(self, *, now: bool = True) -> None:
        """Wake the worker; unless `now`, it first lingers, and a caller may commit before it."""
        if now:
            self._urgent.ring()
        self._arrived.ring()

    def wait(self) -> bool:
        """Sleep until sends wait that have lingered; False once closed. Worker only."""
        while not self._closed:
            if self._first() is None:
                self._arrived.wait()
            first = self._first()  # None when a caller took all
            if self._urgent.wait(self._linger or _LEFT_SECONDS) or self._is_left(first):
                break
        return not self._closed

    def _first(self) -> Sends | None:
        """The sends that have waited longest."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def _is_left(self, first: Sends | None) -> bool:
        """Whether `first` still waits; later sends may yet be committed by a caller."""
        return first is not None and self._first() is first

    def take(self) -> tuple[list[Sends], list[Sends]]:
        """Once no caller commits: what an interrupted one left, and all that waits. Worker only."""
        while True:
            self.worker_waits = True  # set before the check, as a leaving caller reads it last
            with self._lock:
                if self.caller is None:
                    self.worker_waits = False
                    left = list(self._taken) if self.abandoned else []
                    self.abandoned = False
                    taken = self._take()
                    break
            self._turn.get()
        if taken:
            self._sleepers.wake()  # callers that were too far ahead may go on
        return left, taken

    def take_alone(self, most: int, caller: object) -> list[Sends]:
        """Take all waiting sends for this `caller`; none where the worker has to commit them.

        It does while another commit is on its way, for over `most` bytes, and for callbacks.
        """
        with self._lock:
            if self.caller is not None or self._taken or self._bytes() > most:
                return []
            if any(send.calls_back for send in self._waiting):
                return []
            self.caller = caller
            return self._take()

    def _take(self) -> list[Sends]:
        taken, fresh = list(self._waiting), deque[Sends]()
        all_taken = self._taken | dict.fromkeys(taken)
        self._waiting, self._open, self._taken = fresh, {}, all_taken  # all at once
        self._urgent.silence()  # not `_arrived`: each new send would wake the worker for nothing
        return taken

    def finished(self, sends: Sequence[Sends]) -> None:
        """Mark taken sends as done."""
        with self._lock:
            for send in sends:
                self._taken.pop(send, None)
            if sends:
                self._last = sends[-1], self._now_ns()
        self._sleepers.wake()

    def calm(self) -> bool:
        """Whether sends come one at a time: the last is long done, or this thread waited for it."""
        last, when = self._last
        return _was_waited_for_here(last) or self._now_ns() - when > _CALM_NS

    def awaited(self) -> bool:
        """Whether this thread waited for the last send, and so probably will for the next."""
        return _was_waited_for_here(self._last[0])

    def flush(self, timeout: float | None) -> int:
        """Wait for all current sends; returns how many records are unfinished after `timeout`.

        Later sends are not waited for, or a flush might never end; nor is an open transaction.
        """
        with self._lock:
            sent = {*self._waiting, *self._taken}
        if threading.current_thread() not in self.workers:
            until = None if timeout is None else self._monotonic() + timeout
            left = timeout
            if timeout is None:  # committing here can't be stopped at a timeout
                self.commit_here()
            while not self._sleepers.sleep(lambda: self._is_flushed(sent), left):
                if until is not None and (left := until - self._monotonic()) <= 0:
                    break
        return sum(map(len, self._unfinished(sent)))

    def _is_flushed(self, sent: set[Sends]) -> bool:
        with self._lock:
            is_taken = sent.isdisjoint(self._waiting)
        if not is_taken:  # taken sends need no worker: their commit is on its way
            self.call_worker()
        return not self._unfinished(sent)

    def _unfinished(self, sent: set[Sends]) -> set[Sends]:
        with self._lock:
            return sent & {*self._waiting, *self._taken}

    def close(self, refusal: Callable[[], KmqError] | None = None) -> None:
        """Refuse later sends with this error; sends that wait are still committed."""
        self._refusal = refusal or self._refusal
        self._closed = True
        self.call_worker()
        self._sleepers.wake()


def _is_closed() -> KmqError:
    return ClosedError("the producer is closed")


def _was_waited_for_here(sends: Sends | None) -> bool:
    return sends is not None and sends.awaited_by == threading.get_ident()


def _checked(topic: str) -> str:
    """The checked name of a topic; the name of a queue's own log was checked before."""
    if isinstance(topic, str) and queue_of_log(topic) is not None:
        return topic
    return check_name("topic", topic)
