"""A message: a body of bytes, headers and properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from kmq_spark.openmessaging.key_value import KeyValue, Value, put
from kmq_spark.openmessaging.spelling import also_in_camel_case

if TYPE_CHECKING:
    from kmq_spark.openmessaging.producer import SendResult


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


class Rows(Protocol):
    """Stored messages that were read together."""

    def headers(self, row: int) -> dict[str, Any]:
        """The headers of one, those that follow from its place among them."""

    def properties(self, row: int) -> dict[str, Any]:
        """The properties of one."""


@also_in_camel_case
class BytesMessage:
    """Made by `Producer.create_bytes_message_to_topic`, or received; headers are made when asked.

    What belongs to a received one is looked up in the rows that it came with.
    """

    __slots__ = ("_body", "_headers", "_properties", "row", "rows", "sent")

    def __init__(
        self,
        body: bytes | None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        rows: Rows | None = None,
        row: int = 0,
    ) -> None:
        self._body, self._headers, self._properties = body, headers, properties
        self.rows, self.row = rows, row
        #: Where it is stored, of one that was sent.
        self.sent: SendResult | None = None

    def get_body(self) -> bytes | None:
        """The bytes that were sent."""
        return self._body

    def headers(self) -> KeyValue:
        """The headers; of a sent message, when it is stored, with what was set by that."""
        if self.sent is not None:
            sent, self.sent = self.sent, None
            self.header_values().update(sent.headers())
        return KeyValue(self.header_values())

    def properties(self) -> KeyValue:
        """The properties."""
        return KeyValue(self.property_values())

    def put_headers(self, key: str, value: Value) -> Self:
        """Set a header; the message itself is returned."""
        put(self.header_values(), key, value)
        return self

    def put_properties(self, key: str, value: Value) -> Self:
        """Set a property; the message itself is returned."""
        put(self.property_values(), key, value)
        return self

    def header_values(self) -> dict[str, Any]:
        """The headers themselves."""
        if self._headers is None:
            assert self.rows is not None, "it was received"
            self._headers = self.rows.headers(self.row)
        return self._headers

    def property_values(self) -> dict[str, Any]:
        """The properties themselves."""
        if self._properties is None:
            assert self.rows is not None, "it was received"
            self._properties = self.rows.properties(self.row)
        return self._properties

    def __repr__(self) -> str:
        return f"BytesMessage({self._body!r:.60}, headers={self.header_values()})"
