"""A message, the result of sending it, and the names of the standard headers.

Compiled with `message.pxd` where there is a compiler, so that its classes are C's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from cronsim import CronSim, CronSimError

from kmq_spark.client.handles.send_future import SendFuture
from kmq_spark.client.records.metadata import RecordMetadata
from kmq_spark.errors import InvalidRequestError
from kmq_spark.openmessaging.key_value import KeyValue, Value, set_checked

_ID = re.compile(r"(.+):(\d+):(\d+)", re.ASCII)
#: Headers that decide when a message is handed out, and before which others.
_SCHEDULE = "ScheduleExpression"
DECIDING = frozenset(("StartTime", "StopTime", "Timeout", "Priority", _SCHEDULE))
#: Headers that decide under which key a message is stored, in which partition, and whether.
PLACING = frozenset(("SearchKey", "ShardingKey", "ShardingPartition", _SCHEDULE))


class MessageHeader:
    """The names of the standard headers; docs/guide/openmessaging.md tells their meaning."""

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


class SendResult:
    """Where a message is stored; its methods wait until it is."""

    __slots__ = ("_host", "_name", "future")

    def __init__(self, future: SendFuture[RecordMetadata], name: str, host: str) -> None:
        self.future, self._name, self._host = future, name, host

    def message_id(self) -> str:
        """Return the id of the message, for `ack`; raises the error of a refused message."""
        place = self.future.result()
        return f"{ids_of(self._name, place.partition)}{place.offset}"

    def headers(self) -> dict[str, Any]:
        """Return the headers that storing the message has set."""
        time = self.future.result()[3] // 1000
        return {"MessageId": self.message_id(), "StoreTimestamp": time, "StoreHost": self._host}

    messageId = message_id  # noqa: N815


class BytesMessage:
    """A message that was received, or that `Producer.create_bytes_message_to_topic` made."""

    __slots__ = ("body", "header_values", "property_values", "sent")

    def __init__(
        self, body: bytes | None, header_values: dict[str, Any], property_values: dict[str, Any]
    ) -> None:
        self.body, self.header_values, self.property_values = body, header_values, property_values
        #: Where it is stored, of one that was sent.
        self.sent: SendResult | None = None

    def get_body(self) -> bytes | None:
        """Return the body as bytes."""
        return self.body

    getBody = get_body  # noqa: N815

    def headers(self) -> KeyValue:
        """Return the headers; of a sent message with those that storing it has set."""
        if self.sent is not None:
            sent, self.sent = self.sent, None
            self.header_values.update(sent.headers())
        return KeyValue(self.header_values)

    def properties(self) -> KeyValue:
        """Return the properties."""
        return KeyValue(self.property_values)

    def put_headers(self, key: str, value: Value) -> Self:
        """Set a header; returns the message."""
        set_checked(self.header_values, key, value)
        return self

    def put_properties(self, key: str, value: Value) -> Self:
        """Set a property; returns the message."""
        set_checked(self.property_values, key, value)
        return self

    putHeaders, putProperties = put_headers, put_properties  # noqa: N815

    def __reduce__(self) -> tuple[Any, ...]:  # as in `KeyValue`
        given = self.body, self.header_values, self.property_values
        return type(self), given, (getattr(self, "__dict__", None), {"sent": self.sent})

    def __repr__(self) -> str:
        return f"BytesMessage({self.body!r:.60}, headers={self.header_values})"


def delivery_of(headers: Mapping[str, Any]) -> tuple[float, float, float]:
    """From when on and until when a message may be handed out (UTC ms), and its priority.

    `Timeout` counts from `BornTimestamp`, is for ever when 0, and wins; a StopTime before the
    StartTime is none. `ScheduleExpression` chooses the first of its times behind birth and
    StartTime. The priority is 0 to 9. What says no number, or no time, is as if it weren't there.
    """

    def number(name: str, default: float) -> float:
        try:
            value = float(headers.get(name, default))
        except ValueError:
            return default
        return default if math.isnan(value) else value

    start, stop = number("StartTime", -math.inf), number("StopTime", math.inf)
    timeout = number("Timeout", math.nan)
    born = number("BornTimestamp", number("StoreTimestamp", 0))
    if not math.isnan(timeout):
        start, stop = -math.inf, born + timeout if timeout else math.inf
    stop = stop if stop >= start else math.inf
    if _SCHEDULE in headers:
        scheduled = first_scheduled(headers[_SCHEDULE], max(born, start))
        start = start if scheduled is None else scheduled
    return start, stop, min(max(number("Priority", 4), 0), 9)


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


def ids_of(topic: str, partition: int) -> str:
    """Return what the ids of all messages in a partition begin with."""
    return f"{topic}:{partition}:"


def place_of(identity: object) -> tuple[str, int, int] | None:
    """Return topic (or a queue's own log), partition and offset of an id; None for no id."""
    found = _ID.fullmatch(str(identity))
    return (found[1], int(found[2]), int(found[3])) if found else None


def partition_of(name: object) -> tuple[str, int | None]:
    """Split `topic:partition` into name and number; the number is None without one."""
    topic, colon, number = name.partition(":") if isinstance(name, str) else ("", ":", "")
    if colon and not number.isdecimal():
        raise InvalidRequestError(f"a partition is named as `topic:number`, not {name!r:.80}")
    return topic, int(number) if number else None
