"""Transactions: records, acknowledgements and group offsets in one commit, or nothing.

Nothing of an open transaction is in the log. So it delays no reader, and a process that dies leaves
nothing to clean up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pyarrow as pa

from kmq_spark.client.consuming.consumer import Consumer
from kmq_spark.client.handles.arguments import checked_offsets
from kmq_spark.client.keyed.receiving import KeyedDelivery
from kmq_spark.client.queues.delivery import Delivery, several
from kmq_spark.client.records.metadata import BatchMetadata, RecordMetadata
from kmq_spark.client.sending.beside import Acknowledged, GroupOffsets, KeyedAcknowledged
from kmq_spark.client.sending.gathered import Gathered, aborted_by, error_of_sends
from kmq_spark.client.sending.joining import joined
from kmq_spark.client.sending.pending import Pending
from kmq_spark.errors import (
    FencedError,
    IllegalStateError,
    InvalidRequestError,
    KmqError,
    TransactionAbortedError,
)
from kmq_storage.groups.administration import Offsets, offset_entries
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.names import check_name

if TYPE_CHECKING:
    from kmq_spark.client.sending.producer import Producer

Received: TypeAlias = Delivery | KeyedDelivery
#: A consumer that is a member, or offsets by group.
OffsetsToCommit: TypeAlias = Consumer | Mapping[str, Offsets]


class Transaction:
    """What is committed together or not at all; made by `Producer.transaction`.

    Any thread may use it. A call before its beginning or after its end is IllegalStateError;
    TransactionAbortedError says early that nothing of it can be stored any more.
    """

    def __init__(self, producer: Producer, log: CommitLog) -> None:
        self._producer = producer
        self._log = log
        #: Held by a thread that adds to the transaction, or ends it.
        self._turn = threading.RLock()
        self._pending: Pending | None = None
        self._gathered: Gathered | None = None
        self._offsets, self._acknowledged = GroupOffsets(log), Acknowledged(log)
        self._keyed = KeyedAcknowledged(log)
        #: Whether the caller aborted it, and needs no error that says so.
        self._abandoned = False
        #: Whether it belongs to the parent of this forked process.
        self._parents = False

    def send(
        self, topic: str, value: Any, key: bytes | str | None = None, **options: Any
    ) -> Future[RecordMetadata]:
        """Send one record in the transaction, with the options of `Producer.send`.

        The future is done after the commit; waiting for it earlier is IllegalStateError. After an
        abort it raises TransactionAbortedError, with the reason as `__cause__`.
        """
        with self._turn:
            self._check()
            return self._producer.send(topic, value, key, **options)

    def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[bytes | str | None] | None = None,
        **options: Any,
    ) -> Future[list[RecordMetadata]]:
        """Send several records in the transaction, with the options of `Producer.send_batch`."""
        with self._turn:
            self._check()
            return self._producer.send_batch(topic, values, keys, **options)

    def send_arrow(
        self, topic: str, data: Any, *, partition: int | None = None
    ) -> Future[BatchMetadata]:
        """Send Arrow data in the transaction, as `Producer.send_arrow` does."""
        with self._turn:
            self._check()
            return self._producer.send_arrow(topic, data, partition=partition)

    def send_to_queue(
        self, queue: str, value: bytes | str, key: bytes | str | None = None, **options: Any
    ) -> Future[RecordMetadata]:
        """Send to a queue in the transaction, with the options of `Producer.send_to_queue`."""
        with self._turn:
            self._check()
            return self._producer.send_to_queue(queue, value, key, **options)

    def send_arrow_to_queue(self, queue: str, data: Any) -> Future[BatchMetadata]:
        """Send Arrow data to a queue in the transaction, as `Producer.send_arrow_to_queue` does."""
        with self._turn:
            self._check()
            return self._producer.send_arrow_to_queue(queue, data)

    def ack(self, deliveries: Received | Iterable[Received] | pa.Table | pa.RecordBatch) -> None:
        """Acknowledge deliveries of queues or keyed queues, or rows of `Queue.receive_arrow`.

        A delivery whose lock has ended by the commit aborts the transaction, with LeaseExpiredError
        as the cause.
        """
        if isinstance(deliveries, pa.Table | pa.RecordBatch):
            with self._turn:
                self._check()
                self._acknowledged.add_table(deliveries)
            return
        some = several(deliveries, KeyedDelivery)
        with self._turn:
            self._check()
            for each in some:
                (self._keyed if isinstance(each, KeyedDelivery) else self._acknowledged).add(each)

    def commit_offsets(self, offsets: OffsetsToCommit) -> None:
        """Commit the positions of a consumer for its group, or given offsets, in the transaction.

        Args:
            offsets: A consumer that is a member of a group, or `{group: {topic: {partition:
                next}}}`. Given offsets are not checked against the group's members.

        A consumer aborts the transaction, with FencedError as the cause, when it lost its
        partitions to another member, or gave some away whose records it had handed out. A consumer
        with `auto_commit` is IllegalStateError: it commits whether the transaction does or not.
        """
        if isinstance(offsets, Consumer):
            try:
                self._add_offsets(self._of_consumer(offsets))
            except FencedError as lost:
                raise aborted_by(lost) from lost
        elif isinstance(offsets, Mapping):
            for group, by_topic in offsets.items():
                self._add_offsets(self._by_hand(group, by_topic))
        else:
            raise InvalidRequestError(
                "offsets must be a consumer or {group: {topic: {partition: offset}}}, "
                f"not {offsets!r}"
            )

    def send_offsets(self, offsets: Offsets, group: str | Consumer) -> None:
        """Commit offsets for a group: by name, or by a consumer that must be a member then."""
        given = checked_offsets(offsets)
        if isinstance(group, Consumer):
            self._add_offsets(self._of_consumer(group, given))
        else:
            self._add_offsets(self._by_hand(group, given))

    def _of_consumer(self, consumer: Consumer, offsets: Offsets | None = None) -> Unit:
        if consumer._log.identity.store_id != self._log.identity.store_id:
            raise InvalidRequestError(
                f"the consumer is one of store {consumer._log.files.url}: a transaction of store "
                f"{self._log.files.url} commits offsets there only"
            )
        try:
            return consumer._offsets_to_commit(offsets)
        except FencedError as lost:
            self._give_up(lost)
            raise

    def _give_up(self, cause: KmqError) -> None:
        """Store nothing of it, also when the caller goes on after the error."""
        with self._turn:
            if self._gathered is not None and self._gathered.is_open:
                self._gathered.give_up(cause)

    def _by_hand(self, group: str, offsets: Offsets) -> Unit:
        state = self._log.refresh()
        return Unit(offset_entries(state, check_name("group", group), checked_offsets(offsets)))

    def _add_offsets(self, unit: Unit) -> None:
        with self._turn:
            self._check()
            self._offsets.add(unit)

    def _beside(self) -> Unit:
        answers = Unit(tuple(self._acknowledged.entries()))
        return joined([self._offsets.unit(), answers, *self._keyed.units()])

    # --- its life -------------------------------------------------------------------------

    def _check(self) -> None:
        gathered = self._gathered
        if gathered is None or not gathered.is_open:
            raise IllegalStateError(
                "this transaction has not begun: enter it using `with`"
                if gathered is None
                else "this transaction is over; begin another one"
            )
        gathered.check()

    def begin(self, pending: Pending, gathered: Gathered) -> None:
        """Add everything that the producer sends from now on; called by the producer."""
        with self._turn:
            if self._gathered is not None:
                raise IllegalStateError("a transaction begins once; make another one")
            self._pending, self._gathered = pending, gathered
            gathered.beside = self._beside
            try:
                pending.begin(gathered)
            except KmqError:
                self._pending = self._gathered = None
                raise

    def end(self, failure: BaseException | None = None) -> None:
        """Commit the transaction, or abort it with a failure; returns when its futures are done.

        Raises:
            TransactionAbortedError: Nothing of it is stored, and nobody asked for that.
            FencedError: A newer producer of this identity was opened.
            CommitOutcomeUnknownError: It may or may not be stored.
        """
        pending, gathered = self._pending, self._gathered
        assert pending is not None, "it has begun"
        assert gathered is not None, "it has begun"
        called_back = threading.current_thread() in pending.workers
        if failure is None and called_back:
            raise IllegalStateError("a callback can't commit a transaction: its own thread commits")
        if failure is None and self._parents:
            raise _parents_own()
        try:
            with self._turn:
                pending.end(gathered, None if failure is None else aborted_by(failure))
            if not called_back:
                gathered.wait(None)
        finally:
            if not gathered.done:  # this thread is the worker, or was interrupted
                pending.call_worker()
        if failure is None:
            _raise_failure(gathered)
            self._offsets.note()

    def abort(self) -> None:
        """End the transaction, and store nothing of it."""
        self._abandoned = True
        self.end(TransactionAbortedError("the transaction was aborted by its caller"))

    @property
    def is_open(self) -> bool:
        """Whether it has begun and not ended."""
        return self._gathered is not None and self._gathered.is_open

    @property
    def is_lost(self) -> bool:
        """Whether it has ended without a commit that is known to be stored."""
        gathered = self._gathered
        return gathered is not None and not gathered.is_open and gathered.failure is not None

    def leave_to_parent(self, pending: Pending, gathered: Gathered) -> None:
        """In a forked child: stand in for the parent's open transaction, and refuse every send."""
        self._turn, self._parents = threading.RLock(), True
        gathered.give_up(_parents_own())
        pending.begin(gathered)
        self._pending, self._gathered = pending, gathered

    def __enter__(self) -> Self:
        try:
            self._producer._begin(self)
            return self
        except KmqError:
            raise
        except BaseException as error:  # raised by a signal: nobody has the transaction to end it
            self._end_surely(error)
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._abandoned:
            return
        try:
            self.end(error)
        except KmqError:
            raise
        except BaseException as signal:
            self._end_surely(signal)
            raise

    def _end_surely(self, error: BaseException) -> None:
        """Abort it whatever happens; a commit that is on its way already decides its futures."""
        if self._pending is not None and self._gathered is not None:
            self._pending.end(self._gathered, aborted_by(error))
            self._gathered.is_open = False  # also when it had not quite begun
            self._pending.call_worker()


def _parents_own() -> IllegalStateError:
    return IllegalStateError(
        "this transaction belongs to the parent process; abort it here to go on without it"
    )


def _raise_failure(gathered: Gathered) -> None:
    failure = gathered.failure
    if failure is None:
        return
    if isinstance(failure, FencedError) and "producer" in failure.context:
        raise failure
    raise error_of_sends(failure)
