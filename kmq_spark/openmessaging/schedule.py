"""When a message with a `ScheduleExpression` is handed out: once, at the first time of its cron."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from kmq_spark.errors import InvalidRequestError


def first_scheduled(expression: object, earliest: float) -> float | None:
    """Return the first time (UTC ms) from the earliest on that a cron expression names.

    None when there is none, be it that the text is no cron expression.
    """
    try:
        before = datetime.fromtimestamp((earliest - 1) / 1000, UTC)
        return next(CronSim(str(expression), before)).timestamp() * 1000
    except (CronSimError, StopIteration, ValueError, OverflowError, OSError):
        return None


def check_schedule(expression: object, now: float) -> None:
    """InvalidRequestError for what is no cron expression, or names no time after this one."""
    if first_scheduled(expression, now) is None:
        raise InvalidRequestError(
            f"ScheduleExpression must be a cron expression that names a time (UTC): five fields, "
            f"such as '30 6 * * MON-FRI', or six that begin with seconds, not {expression!r:.80}"
        )
