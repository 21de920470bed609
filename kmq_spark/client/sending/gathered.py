"""What an open transaction gathered: one thing for the committing thread, and one commit.

Until then it is in memory up to a limit, and beyond that in files that nobody reads: its commit
names them, and when that never comes they are collected.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kmq_spark.client.handles.send_future import Expedite
from kmq_spark.client.sending.sends import RowSends, Sends
from kmq_spark.errors import (
    CommitOutcomeUnknownError,
    IllegalStateError,
    InvalidRequestError,
    KmqError,
    KmqTimeoutError,
    TransactionAbortedError,
)
from kmq_storage import limits
from kmq_storage.log.binding.binding import Unit

if TYPE_CHECKING:
    from kmq_spark.client.sending.work import Work


class Gathered(Sends):
    """All that one transaction sends and commits, stored whole or not at all."""

    __slots__ = (
        "_begun", "_gathered_bytes", "_monotonic", "_owner", "_stage", "_staged_bytes",
        "beside", "in_files", "is_open", "sends", "staging", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        expedite: Expedite,
        stage: Callable[[Sequence[Sends]], Mapping[Work, Unit]],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__("", expedite)
        self._stage = stage
        self._monotonic = monotonic
        self._begun = monotonic()
        self._owner = threading.get_ident()
        self.is_open = True
        self.sends: list[Sends] = []
        #: Those of the sends that are in memory.
        self.waiting: list[Sends] = []
        #: The units of the others, which come first.
        self.in_files: dict[Work, Unit] = {}
        #: Held while something goes from memory into files.
        self.staging = threading.Lock()
        #: What is committed beside the records: offsets of groups, and acks.
        self.beside: Callable[[], Unit] = lambda: Unit(())
        self._gathered_bytes = self._staged_bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self.sends))

    def check(self) -> None:
        """TransactionAbortedError, early, when nothing of it can be stored any more."""
        self._check_age()
        if self.failure is not None:
            if isinstance(self.failure, IllegalStateError):
                raise self.failure
            raise error_of_sends(self.failure)

    def _check_age(self) -> None:
        age = self._monotonic() - self._begun
        if age > limits.TRANSACTION_SECONDS_MAX:
            self.give_up(_too_long(age))

    def give_up(self, cause: KmqError) -> None:
        """Store nothing of it, for this cause."""
        self.failure = self.failure or cause

    # --- while it is open; the callers hold the lock of what is pending -------------------

    def add(self, sends: Sends) -> None:
        """Add sends, behind all others; TransactionAbortedError as in `check`."""
        self.check()
        sends.expedite = self._awaited
        self.sends.append(sends)
        self.waiting.append(sends)

    def count(self, sends: Sends) -> None:
        """Count these, to which no rows are added any more."""
        self._gathered_bytes += sends.size

    def share(self, others: int) -> int:
        """The bytes that may gather for one topic more until it is too much for the memory."""
        return max(limits.TRANSACTION_MEMORY_BYTES - self._gathered_bytes, 0) // (others + 1)

    @property
    def is_too_much(self) -> bool:
        """Whether what waits should go into files."""
        return self._gathered_bytes >= limits.TRANSACTION_MEMORY_BYTES

    def take_waiting(self) -> list[Sends]:
        """All that is in memory, to be staged; no more rows are added to it."""
        taken, self.waiting, self._gathered_bytes = self.waiting, [], 0
        self._staged_bytes += sum(send.size for send in taken)
        return taken

    # --- without that lock ----------------------------------------------------------------

    def stage(self, take: Callable[[], Sequence[Sends]]) -> None:
        """Write what `take` gives to files; TransactionAbortedError if it can't be."""
        with self.staging:
            try:
                self._write(take())
            except KmqError as error:
                self.give_up(error)
                raise error_of_sends(error) from error
            except BaseException as error:  # raised by a signal: what was taken is lost
                self.give_up(aborted_by(error))
                raise

    def _write(self, sends: Sequence[Sends]) -> None:
        if self._staged_bytes > limits.TRANSACTION_BYTES_MAX:
            raise _too_large(self._staged_bytes)
        self.in_files.update(self._stage(sends))
        for send in sends:
            send.let_go()
            if isinstance(send, RowSends):
                send.times = array("q", send.times)  # an eighth of what a list takes

    def _awaited(self, *, helping: bool = False) -> None:
        """Called when a caller waits; IllegalStateError in the thread that is to commit."""
        if not self.is_open:
            self.expedite(helping=helping)
        elif helping and threading.get_ident() == self._owner:
            raise IllegalStateError(
                "this record is part of an open transaction: its future is done after the commit"
            )

    def end(self, failure: KmqError | None) -> None:
        """Take nothing more; with a failure it ends with that."""
        self.is_open = False
        self.failure = failure or self.failure
        self._check_age()
        self.size = sum(send.size for send in self.waiting)
        if self._staged_bytes + self.size > limits.TRANSACTION_BYTES_MAX:
            self.give_up(_too_large(self._staged_bytes + self.size))

    # --- for the committing thread ---------------------------------------------------------------

    def first_error(self) -> KmqError | None:
        """Why something of it can't be stored, if so."""
        return self.failure or next(filter(None, (s.first_error() for s in self.sends)), None)

    def finish(self) -> None:
        """Finish all sends alike."""
        failure = None if self.failure is None else error_of_sends(self.failure)
        for send in self.sends:
            send.failure = failure
            send.finish()
        self.waiting, self.in_files = [], {}
        super().finish()

    @property
    def calls_back(self) -> bool:
        """Whether it has callbacks."""
        return any(send.calls_back for send in self.sends)

    def call_back(self) -> None:
        """Run the callbacks, in the order of the sends."""
        for send in self.sends:
            send.call_back()


def error_of_sends(failure: KmqError) -> KmqError:
    """Return the error for the sends of a transaction whose commit failed."""
    return failure if isinstance(failure, CommitOutcomeUnknownError) else aborted_by(failure)


def aborted_by(cause: BaseException) -> TransactionAbortedError:
    """The error of a transaction that was aborted for this cause."""
    if isinstance(cause, TransactionAbortedError):
        return cause
    reason = str(cause) if isinstance(cause, KmqError) else repr(cause)
    aborted = TransactionAbortedError(
        f"the transaction was aborted and nothing of it is stored: {reason}", reason=reason
    )
    aborted.__cause__ = cause
    return aborted


def _too_large(size: int) -> InvalidRequestError:
    limit = limits.TRANSACTION_BYTES_MAX
    return InvalidRequestError(
        f"a transaction of {size} bytes is too large: one takes up to {limit} "
        "(TRANSACTION_BYTES_MAX); commit more often",
        size=size,
        limit=limit,
    )


def _too_long(seconds: float) -> KmqTimeoutError:
    limit = limits.TRANSACTION_SECONDS_MAX
    return KmqTimeoutError(
        f"it was open for {seconds:.0f} s; a transaction is committed within {limit:g} s "
        "(TRANSACTION_SECONDS_MAX)",
        limit=limit,
    )
