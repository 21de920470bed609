"""A message: a body of bytes, headers and properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from kmq_spark.openmessaging.key_value import KeyValue, Value, put
from kmq_spark.openmessaging.spelling import also_in_camel_case
from kmq_spark.openmessaging.stored import Stored, headers_of

if TYPE_CHECKING:
    from kmq_spark.openmessaging.producer import SendResult


@also_in_camel_case
class BytesMessage:
    """Made by `Producer.create_bytes_message_to_topic`, or received.

    Headers and properties of one that was received are looked at when somebody asks.
    """

    __slots__ = ("_body", "_headers", "_host", "_properties", "_stored", "sent")

    def __init__(
        self,
        body: bytes | None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        stored: Stored | None = None,
        host: str = "",
    ) -> None:
        self._body, self._headers, self._properties = body, headers, properties
        self._stored, self._host = stored, host
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
            assert self._stored is not None, "it was received"
            self._headers = headers_of(self._stored, self._host)
        return self._headers

    def property_values(self) -> dict[str, Any]:
        """The properties themselves."""
        if self._properties is None:
            assert self._stored is not None, "it was received"
            self._properties = dict(self._stored[5])
        return self._properties

    def __repr__(self) -> str:
        return f"BytesMessage({self._body!r:.60}, headers={self.header_values()})"
