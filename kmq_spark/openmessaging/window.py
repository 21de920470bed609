"""When a message may be handed out: Timeout, StartTime and StopTime. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: Headers that decide when a message is handed out, and before which others.
DECIDING = frozenset(("StartTime", "StopTime", "Timeout", "Priority"))


def delivery_window(headers: Mapping[str, Any]) -> tuple[float, float]:
    """From when on, and until when, a message may be handed out; UTC milliseconds.

    `Timeout` counts from `BornTimestamp`, is for ever when 0, and wins; a StopTime before the
    StartTime is none.
    """
    if "Timeout" in headers:
        timeout = _number(headers, "Timeout")
        return -math.inf, _number(headers, "BornTimestamp") + timeout if timeout else math.inf
    start = _number(headers, "StartTime") if "StartTime" in headers else -math.inf
    stop = _number(headers, "StopTime") if "StopTime" in headers else math.inf
    return start, stop if stop >= start else math.inf


def priority(headers: Mapping[str, Any]) -> float:
    """0 to 9; 4 where nothing is said."""
    return min(max(_number(headers, "Priority"), 0), 9) if "Priority" in headers else 4


def _number(headers: Mapping[str, Any], key: str) -> float:
    """A header as a number; 0 for text, which nobody can wait for."""
    value = headers.get(key)
    return value if isinstance(value, int | float) else 0
