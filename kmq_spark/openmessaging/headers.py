"""The standard headers, and when a message may be handed out by them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class MessageHeader:
    """The names of the standard headers; docs/guide/openmessaging.md has what they mean."""

    MESSAGE_ID = "MessageId"
    TOPIC = "Topic"
    QUEUE = "Queue"
    BORN_TIMESTAMP = "BornTimestamp"
    BORN_HOST = "BornHost"
    STORE_TIMESTAMP = "StoreTimestamp"
    STORE_HOST = "StoreHost"
    START_TIME = "StartTime"
    STOP_TIME = "StopTime"
    TIMEOUT = "Timeout"
    PRIORITY = "Priority"
    RELIABILITY = "Reliability"
    SEARCH_KEY = "SearchKey"
    SCHEDULE_EXPRESSION = "ScheduleExpression"
    SHARDING_KEY = "ShardingKey"
    SHARDING_PARTITION = "ShardingPartition"
    TRACE_ID = "TraceId"


#: Headers that decide when a message is handed out, and before which others.
DECIDING = frozenset(("StartTime", "StopTime", "Timeout", "Priority"))


def delivery_window(headers: Mapping[str, Any]) -> tuple[float, float]:
    """From when on, and until when, a message may be handed out; UTC milliseconds.

    `Timeout` counts from `BornTimestamp`, is for ever when 0, and wins; a StopTime before the
    StartTime is none.
    """
    if "Timeout" in headers:
        timeout = _number(headers, "Timeout", 0)
        return -math.inf, _number(headers, "BornTimestamp", 0) + timeout if timeout else math.inf
    start, stop = _number(headers, "StartTime", -math.inf), _number(headers, "StopTime", math.inf)
    return start, stop if stop >= start else math.inf


def priority(headers: Mapping[str, Any]) -> float:
    """0 to 9; 4 where nothing is said."""
    return min(max(_number(headers, "Priority", 4), 0), 9)


def _number(headers: Mapping[str, Any], key: str, default: float) -> float:
    """A header as a number; 0 for text, which nobody can wait for."""
    value = headers.get(key, default)
    return value if isinstance(value, int | float) else 0
