"""The results of sends: where records are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

from kmq_storage.model import to_datetime


class RecordMetadata(tuple[Any, ...]):
    """Where one record is stored.

    Attributes:
        topic: The topic; None for a record that was sent to a queue.
        partition, offset: Its place. The offset is -1 when the record is stored, but its commit was
            collected before the offset was known.
        timestamp: A datetime in UTC.
        duplicate: Whether a record with the same `uniq` was there already; this is its place then.
        queue: The queue that it was sent to; None for a topic.

    It is a tuple underneath, as Record is: the timestamp in UTC microseconds, and name and id of
    the queue behind it where there is one.
    """

    __slots__ = ()

    topic: str | None = property(itemgetter(0))  # type: ignore[assignment]
    partition: int = property(itemgetter(1))  # type: ignore[assignment]
    offset: int = property(itemgetter(2))  # type: ignore[assignment]
    duplicate: bool = property(itemgetter(4))  # type: ignore[assignment]

    @property
    def timestamp(self) -> datetime:
        """The timestamp of the record, in UTC."""
        return to_datetime(self[3])

    @property
    def queue(self) -> str | None:
        """The queue that the record was sent to; None for a topic."""
        return self[5] if len(self) > 5 else None

    @property
    def _queue_id(self) -> bytes | None:
        """The id of that queue: a later queue of its name has another one."""
        return self[6] if len(self) > 6 else None

    def __repr__(self) -> str:
        where = f"topic={self.topic!r}" if self.queue is None else f"queue={self.queue!r}"
        return (
            f"RecordMetadata({where}, partition={self.partition}, "
            f"offset={self.offset}, timestamp={self.timestamp.isoformat()}, "
            f"duplicate={self.duplicate})"
        )


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Where the rows of one Arrow batch are stored.

    Attributes:
        topic: The topic; None for rows that were sent to a queue.
        rows: The number of rows.
        offsets: The first offset and the one after the last: `{partition: (first, end)}`.
    """

    topic: str | None
    rows: int
    offsets: Mapping[int, tuple[int, int]]
