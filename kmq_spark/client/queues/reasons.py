"""Why records failed, and become dead letters."""

from __future__ import annotations

from typing import TypeAlias

from kmq_spark.errors import InvalidRequestError

#: The reason of a dead letter for which nobody gave one.
TOO_OFTEN = "max_deliveries"
#: Text, or the exception that was caught.
Reason: TypeAlias = str | BaseException | None
#: Messages of exceptions may be of any length; each letter has one.
_CHARACTERS = 1_000


def told(reason: Reason, otherwise: str) -> str:
    """Return a reason as a dead letter has it; InvalidRequestError for what is none."""
    if isinstance(reason, BaseException):
        text = f"{type(reason).__name__}: {reason}"[:_CHARACTERS]
        return text.encode(errors="replace").decode()
    if reason is not None and not isinstance(reason, str):
        raise InvalidRequestError(
            f"reason must be text or an exception, not {reason!r}", field="reason"
        )
    return reason or otherwise


def brief(reason: Reason) -> str:
    """Return a reason as the commit log has it of each failure; empty for none."""
    return told(reason, "")[:_CHARACTERS].encode(errors="replace").decode()
