"""The record as a consumer gets it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any

from kmq_storage.model import to_datetime


class Record(tuple[Any, ...]):
    """One record: frozen, and equal to another one with the same content.

    Attributes:
        topic: The topic; None for a record that was sent to a queue directly.
        partition, offset: Where it is stored: in the topic, or in the queue's own log.
        key: Bytes, or None.
        value: Bytes, or None for a tombstone. A dict for a record of a typed topic.
        headers: Pairs of name and value (bytes or None), in their order.
        properties: A mapping of names to int, float, str, bytes or bool.
        timestamp: A datetime in UTC.
        queue: The queue that it was received from; None for a record of a consumer.

    It is a tuple underneath: a batch of records is then built without running Python code per
    record.
    """

    __slots__ = ()

    topic: str | None = property(itemgetter(0))  # type: ignore[assignment]
    partition: int = property(itemgetter(1))  # type: ignore[assignment]
    offset: int = property(itemgetter(2))  # type: ignore[assignment]
    key: bytes | None = property(itemgetter(3))  # type: ignore[assignment]
    value: Any = property(itemgetter(4))
    headers: tuple[tuple[str, bytes | None], ...] = property(  # type: ignore[assignment]
        itemgetter(5)
    )
    properties: Mapping[str, Any] = property(itemgetter(6))  # type: ignore[assignment]
    queue: str | None = property(itemgetter(8))  # type: ignore[assignment]

    @property
    def timestamp(self) -> datetime:
        """The timestamp of the record, in UTC: its sender's, else when it was sent."""
        return to_datetime(self[7])

    def __hash__(self) -> int:
        return hash(self[:4])  # the value of a typed record is a dict

    def __repr__(self) -> str:
        value = self.value
        short = value[:40] + b"..." if isinstance(value, bytes) and len(value) > 40 else value
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"key={self.key!r}, value={short!r}, timestamp={self.timestamp.isoformat()})"
        )
