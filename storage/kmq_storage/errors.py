"""The errors of kmq, grouped by what the caller has to do.

    KmqError
    |- InvalidRequestError (ValueError)     fix the call
    |- NotFoundError (LookupError)          name something that exists
    |- AlreadyExistsError                   pick another name, or accept what is there
    |- ConflictError                        another writer won: retry
    |- FencedError                          a newer owner took over: stop using this handle
    |  `- LeaseExpiredError                 the record was handed to somebody else
    |- OffsetOutOfRangeError (LookupError)  pick an offset inside the named range
    |- DataLossError                        records that were asked for are gone
    |- QueueFullError (BufferError)         make room, or wait
    |- TransactionAbortedError              nothing of the transaction was written
    |- UnavailableError                     disk or network failed: retry later
    |  `- CommitOutcomeUnknownError         may be written: only an idempotent retry is safe
    |- CorruptionError                      stored bytes are damaged
    |  `- FormatVersionError                written by a newer kmq
    |- KmqTimeoutError (TimeoutError)       wait longer
    |- ClosedError                          open a new handle
    `- IllegalStateError (RuntimeError)     the call does not fit the state of this handle

Every class takes a message and facts as keywords, and survives pickling with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = [
    "AlreadyExistsError",
    "ClosedError",
    "CommitOutcomeUnknownError",
    "ConflictError",
    "CorruptionError",
    "DataLossError",
    "FencedError",
    "FormatVersionError",
    "IllegalStateError",
    "InvalidRequestError",
    "KmqError",
    "KmqTimeoutError",
    "KmqWarning",
    "LeaseExpiredError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "QueueFullError",
    "TransactionAbortedError",
    "UnavailableError",
]


class KmqWarning(UserWarning):
    """Something was asked for that changes nothing, for example other settings for an old topic."""


class KmqError(Exception):
    """The root of every error that kmq raises on purpose."""

    kind: str = "error"
    retryable: bool = False

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context: Mapping[str, Any] = MappingProxyType(context)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Callable[..., KmqError], tuple[Any, ...]]:
        return _rebuild, (type(self), self.message, dict(self.context))


def _rebuild(cls: type[KmqError], message: str, context: dict[str, Any]) -> KmqError:
    return cls(message, **context)


class InvalidRequestError(KmqError, ValueError):
    """The call itself is wrong: a name, an option, a size or a type."""

    kind = "invalid_request"


class NotFoundError(KmqError, LookupError):
    """The topic, queue, group or store that was named does not exist."""

    kind = "not_found"

    __str__ = KmqError.__str__


class AlreadyExistsError(KmqError):
    """What should be created exists already."""

    kind = "already_exists"


class ConflictError(KmqError):
    """Another writer changed the same thing first; reading again and retrying helps."""

    kind = "conflict"
    retryable = True


class FencedError(KmqError):
    """A newer producer or member owns what this handle wrote to; the handle is finished."""

    kind = "fenced"


class LeaseExpiredError(FencedError):
    """The answer came after the record was handed to another receiver."""

    kind = "lease_expired"


class OffsetOutOfRangeError(KmqError, LookupError):
    """An offset lies outside the log; the context carries the valid range."""

    kind = "offset_out_of_range"

    __str__ = KmqError.__str__


class DataLossError(KmqError):
    """Records that a reader still had to read are gone."""

    kind = "data_loss"


class QueueFullError(KmqError, BufferError):
    """The topic holds as many records as its capacity allows; nothing was written."""

    kind = "queue_full"


class TransactionAbortedError(KmqError):
    """The transaction was aborted; nothing of it was written."""

    kind = "transaction_aborted"


class UnavailableError(KmqError):
    """The storage did not do its work (disk full, lock held, I/O error); retry later."""

    kind = "unavailable"
    retryable = True


class CommitOutcomeUnknownError(UnavailableError):
    """A commit may or may not be stored; only an idempotent retry is safe."""

    kind = "commit_outcome_unknown"
    retryable = False


class CorruptionError(KmqError):
    """Stored bytes do not match their checksum; the context names file and offsets."""

    kind = "corruption"


class FormatVersionError(CorruptionError):
    """The store was written by a newer kmq than this one."""

    kind = "format_version"


class KmqTimeoutError(KmqError, TimeoutError):
    """A wait with a limit ended before its result was there."""

    kind = "timeout"
    retryable = True


class ClosedError(KmqError):
    """The handle was closed."""

    kind = "closed"


class IllegalStateError(KmqError, RuntimeError):
    """The call does not fit the state that this handle is in."""

    kind = "illegal_state"
