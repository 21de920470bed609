"""The transactions of a producer: one at a time, and every send of the producer takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kmq_spark.client.consuming.consumer import Consumer
from kmq_spark.client.sending.committer import Committer
from kmq_spark.client.sending.encoder import Encoder
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.client.sending.pending import Pending
from kmq_spark.client.sending.transaction import Transaction
from kmq_spark.errors import ClosedError, IllegalStateError, KmqError
from kmq_storage.groups.administration import Offsets
from kmq_storage.log.commit_log import CommitLog

if TYPE_CHECKING:
    from kmq_spark.client.sending.producer import Producer


class Transactional:
    """The part of a producer that is about transactions."""

    _log: CommitLog
    _pending: Pending
    _encoder: Encoder
    _committer: Committer
    _transaction: Transaction | None
    _closed: bool

    def transaction(self) -> Transaction:
        """Return a transaction for a `with` block: everything sent in it is one commit, or nothing.

        Leaving the block commits, an exception aborts. Meanwhile every send of this producer takes
        part, from any thread. A producer has one open transaction at a time (IllegalStateError).
        """
        return Transaction(cast("Producer", self), self._log)

    def begin_transaction(self) -> Transaction:
        """Begin a transaction, which `commit_transaction` or `abort_transaction` ends.

        FencedError when a newer producer of this identity is known already; otherwise the commit
        raises it.
        """
        return self.transaction().__enter__()

    def commit_transaction(self) -> None:
        """Commit everything sent since `begin_transaction`; returns when it is durable.

        Raises:
            TransactionAbortedError: Nothing of it is stored; `__cause__` is the reason.
            FencedError: A newer producer of this identity was opened.
            CommitOutcomeUnknownError: It may or may not be stored.
        """
        self._open_transaction().end()

    def abort_transaction(self) -> None:
        """Store nothing of what was sent since `begin_transaction`.

        The futures of these sends raise TransactionAbortedError.
        """
        self._open_transaction().abort()

    def send_offsets_to_transaction(self, offsets: Offsets, group: str | Consumer) -> None:
        """Commit offsets for a group as part of the open transaction.

        `offsets`: `{topic: {partition: next offset to read}}`. `group`: a name, or a consumer of
        the group. A consumer must own these partitions when the transaction commits.
        """
        self._open_transaction().send_offsets(offsets, group)

    @property
    def _in_transaction(self) -> bool:
        """Whether what is sent now takes part in a transaction."""
        return self._transaction is not None and self._transaction.is_open

    def _open_transaction(self) -> Transaction:
        if self._transaction is None or not self._transaction.is_open:
            if self._closed:
                raise ClosedError("the producer is closed, which aborted its open transaction")
            raise IllegalStateError("no transaction is open; begin one first")
        return self._transaction

    def _begin(self, transaction: Transaction) -> None:
        if not self._in_transaction:
            self._pending.check_open()
            self._committer.check_epoch()  # fail now, not at the commit
            self._transaction = transaction
        transaction.begin(self._pending, self._new_gathered())

    def _new_gathered(self) -> Gathered:
        return Gathered(
            self._pending.expedite, self._encoder.stage, self._log.environment.monotonic
        )

    def _abort(self, cause: KmqError) -> None:
        if self._transaction is not None and self._transaction.is_open:
            self._transaction.end(cause)

    def _leave_to_parent(self) -> None:
        """In a forked child: take part in nothing that the parent began."""
        if self._transaction is not None and self._transaction.is_open:
            self._transaction.leave_to_parent(self._pending, self._new_gathered())
