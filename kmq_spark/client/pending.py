"""What was sent and waits for its commit: filled by user threads, emptied by whoever commits."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from queue import SimpleQueue

from kmq_spark.client import compiled
from kmq_spark.client.gathered import Gathered
from kmq_spark.client.metadata import RecordMetadata
from kmq_spark.client.send_future import SendFuture
from kmq_spark.client.sends import OnDelivery, RowSends, Sends
from kmq_spark.client.structured import TypedValue
from kmq_spark.client.values import size_among
from kmq_spark.client.waiting_extras import WaitingExtras
from kmq_spark.errors import ClosedError, IllegalStateError, KmqError
from kmq_storage.environment import Environment
from kmq_storage.names import check_name, queue_of_log
from kmq_storage.waking import Bell, Sleepers

#: What a record costs in memory besides its bytes.
_ROW_BYTES = 64
#: A producer that finished its last commit this long ago is not in the middle of a stream.
_CALM_NS = 1_000_000
#: A caller this far ahead of the worker lets it catch up for a moment: what has left the
#: processor's caches takes both of them three times as long.
_AHEAD_BYTES, _CATCH_UP_SECONDS = 2_097_152, 0.002
#: What a caller will commit is left to it for so long.
_LEFT_SECONDS = 0.005


class Pending:
    """Sends in the order of the calls, bounded in bytes.

    Threads of users may be interrupted anywhere: what belongs together changes by plain stores
    without a call in between, and what waits is rung for before it can be seen, or again later.
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
        #: As `add_any`, without Python where a record is plain.
        self.add = (
            compiled.adding.Adding(self, _ROW_BYTES).add if compiled.is_there else self.add_any
        )
        #: Users' threads that wait for room, or for all to be done.
        self._sleepers = Sleepers()
        #: Records sent one by one gather here until they are taken.
        self._open: dict[str, RowSends] = {}
        self._waiting: deque[Sends] = deque()
        #: The open transaction, which has all that is sent meanwhile.
        self._transaction: Gathered | None = None
        #: What is taken and not finished, in order.
        self._taken: dict[Sends, None] = {}
        #: What finished last, and when.
        self._last: tuple[Sends | None, int] = (None, 0)
        #: Set by whoever commits: try to do that now, in the thread of who waits.
        self.commit_here: Callable[[], bool] = lambda: False
        self._arrived = Bell()
        #: Rung when lingering makes no sense: enough is there, or somebody waits.
        self._urgent = Bell()
        #: The call that commits what it took, in a user's thread; the worker waits for its end.
        self.caller: object | None = None
        self.worker_waits = False
        self._turn: SimpleQueue[None] = SimpleQueue()
        self.give_turn = self._turn.put  # one call of C
        #: Whether that call was interrupted: what became of its commit, the worker finds out.
        self.abandoned = False
        self._closed = False
        self._refusal: Callable[[], KmqError] = _is_closed
        #: The threads that commit: they never wait for room, since they make it.
        self.workers: set[threading.Thread] = set()

    def add_any(
        self,
        topic: str,
        value: bytes | TypedValue | None,
        key: bytes | None,
        extras: WaitingExtras | None,
        on_delivery: OnDelivery | None,
    ) -> SendFuture[RecordMetadata]:
        """Add one record; waits while too many bytes are pending."""
        now = self._now_ns()
        more = _ROW_BYTES
        if extras is not None:
            more += len(extras) if isinstance(extras, bytes) else size_among(extras)
        # Calls are before it where they can be: a thread with the lock is interrupted behind one.
        with self._lock:  # no signal comes between taking it and being in here
            try:
                rows = self._open[topic] if topic in self._open else self._open_rows(topic)
            except TypeError:
                _checked(topic)  # a list, for example, is no key of a dict
                raise
            values = rows.values
            index, size = len(values), rows.size
            try:
                values.append(value)
                rows.keys.append(key)
                rows.times.append(now)
                if extras is not None:
                    rows.extras[index] = extras
                if on_delivery is not None:
                    rows.user_callbacks.append((index, on_delivery))
            except BaseException:  # a signal's: the others of this commit go on
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
            self._take_part(self._transaction, rows)
            self._open[topic] = rows
            return rows
        rows.alarm = min(self._batch_bytes, self._share(len(self._open) + 1))
        if self._linger:  # else the producer decides who commits, and wakes the worker
            self._arrived.ring()  # it looks when this lock is free
        self._open[topic] = rows
        self._waiting.append(rows)
        return rows

    def _take_part(self, transaction: Gathered, sends: Sends) -> None:
        transaction.check()
        transaction.add(sends)

    def _share(self, topics: int) -> int:
        """What of the bytes that may still gather is one topic's of so many.

        Added up anew whenever the topics have doubled, as to do it for each took a fourth of all.
        """
        if not topics & (topics - 1):
            self._room = max(self._max_bytes - self._bytes(), 0)
        return self._room // topics

    def check_open(self) -> None:
        """Raise the reason for which nothing more is accepted, if there is one."""
        if self._closed:
            raise self._refusal()

    def _when_enough(self, rows: RowSends) -> None:
        """Enough gathered for a commit: later records gather anew, so memory is used again soon."""
        with self._lock:
            if self._open.get(rows.topic) is rows:
                del self._open[rows.topic]
                self._count(rows)
            rows.alarm = sys.maxsize
        if not self.relieved():
            self.call_worker()
            self._wait_for_room()

    def _count(self, sends: Sends | None) -> None:
        if self._transaction is not None and sends is not None:
            self._transaction.count(sends)

    def put(self, sends: Sends) -> None:
        """Add a batch behind everything that was sent before; it is nobody's to commit yet."""
        with self._lock:
            self.check_open()
            # Later single records of this topic go behind the batch.
            self._count(self._open.pop(sends.topic, None))
            if self._transaction is None:
                self._waiting.append(sends)
            else:
                self._take_part(self._transaction, sends)
                self._transaction.count(sends)

    def begin(self, transaction: Gathered) -> None:
        """Have all that is sent from now on take part in a transaction, until its end."""
        with self._lock:
            self.check_open()
            if self._transaction is not None:
                raise IllegalStateError(
                    "a transaction of this producer is open already: commit or abort it first, or "
                    "use one producer for each"
                )
            self._open.clear()  # what was sent before is committed before
            self._transaction = transaction

    def end(self, transaction: Gathered, failure: KmqError | None = None) -> bool:
        """Have a transaction committed behind all that was sent before; with a failure, told of it.

        False when it was ended already. The caller waits for it, or calls the worker.
        """
        with transaction.staging, self._lock:
            if self._transaction is not transaction:
                return False
            transaction.end(failure)
            self._open.clear()
            self._transaction = None
            self._waiting.append(transaction)
            return True

    def relieved(self) -> bool:
        """Whether a transaction is open; what of it is too much for the memory goes into files."""
        transaction = self._transaction
        if transaction is not None and transaction.is_too_much:
            transaction.stage(lambda: self._take_part_of(transaction))
        return transaction is not None

    def _take_part_of(self, transaction: Gathered) -> list[Sends]:
        with self._lock:
            if not (transaction.is_open and transaction.is_too_much):
                return []
            self._open.clear()
            return transaction.take_waiting()

    def call_worker_for(self, sends: Sends) -> None:
        """Leave a batch to the worker; waits while too much is pending."""
        with self._lock:
            waiting = self._waiting
            gathered = sum(sends.size for sends in waiting)
        self.call_worker(now=gathered >= self._batch_bytes or not self._linger)
        if gathered > _AHEAD_BYTES:
            self._sleepers.sleep(lambda: self._waiting is not waiting, _CATCH_UP_SECONDS)
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        if threading.current_thread() in self.workers:
            return  # a callback that sends must not wait for itself
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
        """Stop lingering: somebody waits, and commits in its own thread if it is `helping`."""
        if helping:
            self.check_waits()
        if not (helping and self.commit_here()):
            self.call_worker()

    def check_waits(self) -> None:
        """IllegalStateError in a callback: who waits there, waits for itself."""
        if threading.current_thread() in self.workers:
            raise IllegalStateError("a callback can't wait for a commit: its thread would make it")

    def call_worker(self, *, now: bool = True) -> None:
        """There is something to do for the worker, or will be unless a caller does it first."""
        if now:
            self._urgent.ring()
        self._arrived.ring()

    def wait(self) -> bool:
        """Sleep until something waits and has lingered; False once closed. Worker only."""
        while not self._closed:
            if self._first() is None:
                self._arrived.wait()
            first = self._first()  # none when a caller took it
            if self._urgent.wait(self._linger or _LEFT_SECONDS) or self._is_left(first):
                break
        return not self._closed

    def _first(self) -> Sends | None:
        """What waits for longest."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def _is_left(self, first: Sends | None) -> bool:
        """Whether it still waits; what came after a caller's commit may be the caller's, too."""
        return first is not None and self._first() is first

    def take(self) -> tuple[list[Sends], list[Sends]]:
        """What an interrupted caller did not finish, and everything that waits. Worker only.

        Waits while a caller commits.
        """
        while True:
            self.worker_waits = True  # before the look, as the caller looks after it went
            with self._lock:
                if self.caller is None:
                    self.worker_waits = False
                    left = list(self._taken) if self.abandoned else []
                    self.abandoned = False
                    taken = self._take()
                    break
            self._turn.get()
        if taken:
            self._sleepers.wake()  # who was too far ahead is not any more
        return left, taken

    def take_alone(self, most: int, caller: object) -> list[Sends]:
        """Everything that waits, for this `caller`, if nothing else is on its way to the disk.

        Nothing when it is more than `most` bytes, or when somebody is to be called back: that
        is for the worker.
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
        self._urgent.silence()  # not what arrived: the worker would wake up for each, and in vain
        return taken

    def finished(self, sends: Sequence[Sends]) -> None:
        """These are done."""
        with self._lock:
            for send in sends:
                self._taken.pop(send, None)
            if sends:
                self._last = sends[-1], self._now_ns()
        self._sleepers.wake()

    def calm(self) -> bool:
        """Whether sends come one at a time: the last one is long done, or was waited for here."""
        last, when = self._last
        return _was_waited_for_here(last) or self._now_ns() - when > _CALM_NS

    def awaited(self) -> bool:
        """Whether this thread waited for its last send, and so will for the next."""
        return _was_waited_for_here(self._last[0])

    def flush(self, timeout: float | None) -> int:
        """Wait for all that waits now; how many records of it still do after `timeout` seconds.

        What others send meanwhile is not waited for: with them that might never end. An open
        transaction's records wait for its end, and nobody for them.
        """
        with self._lock:
            sent = {*self._waiting, *self._taken}
        if threading.current_thread() not in self.workers:
            until = None if timeout is None else self._monotonic() + timeout
            left = timeout
            if timeout is None:  # who helps can't stop after some time
                self.commit_here()
            while not self._sleepers.sleep(lambda: self._is_flushed(sent), left):
                if until is not None and (left := until - self._monotonic()) <= 0:
                    break
        return sum(map(len, self._unfinished(sent)))

    def _is_flushed(self, sent: set[Sends]) -> bool:
        with self._lock:
            is_taken = sent.isdisjoint(self._waiting)
        if not is_taken:  # else it is on its way without a call
            self.call_worker()
        return not self._unfinished(sent)

    def _unfinished(self, sent: set[Sends]) -> set[Sends]:
        with self._lock:
            return sent & {*self._waiting, *self._taken}

    def close(self, refusal: Callable[[], KmqError] | None = None) -> None:
        """Accept nothing more, for this reason; what is there is still taken."""
        self._refusal = refusal or self._refusal
        self._closed = True
        self.call_worker()
        self._sleepers.wake()


def _is_closed() -> KmqError:
    return ClosedError("the producer is closed")


def _was_waited_for_here(sends: Sends | None) -> bool:
    return sends is not None and sends.awaited_by == threading.get_ident()


def _checked(topic: str) -> str:
    """The name of a topic, or of a queue's own log, whose name was checked before."""
    if isinstance(topic, str) and queue_of_log(topic) is not None:
        return topic
    return check_name("topic", topic)
