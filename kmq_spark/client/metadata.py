"""Where records went: the results of sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

from kmq_storage.model import to_datetime


class RecordMetadata(tuple[Any, ...]):
    """The place of one record: made of `(topic, partition, offset, timestamp, duplicate)`.

    A tuple underneath, as Record is, with name and id of the queue as two more members where
    there is one; the timestamp is kept in UTC microseconds until it is asked for.
    """

    __slots__ = ()

    #: None for a record that was sent to a queue.
    topic: str | None = property(itemgetter(0))  # type: ignore[assignment]
    partition: int = property(itemgetter(1))  # type: ignore[assignment]
    #: -1 when it is stored, but the commit was collected before its producer could be told.
    offset: int = property(itemgetter(2))  # type: ignore[assignment]
    #: Whether the record was there already and this is the first one's place.
    duplicate: bool = property(itemgetter(4))  # type: ignore[assignment]

    @property
    def timestamp(self) -> datetime:
        """When the record was made, UTC."""
        return to_datetime(self[3])

    @property
    def queue(self) -> str | None:
        """The queue that it was sent to; None for a topic."""
        return self[5] if len(self) > 5 else None

    @property
    def _queue_id(self) -> bytes | None:
        """Which queue of that name it was; None for a topic."""
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
    """The places of the rows of one Arrow batch."""

    #: None for rows that were sent to a queue.
    topic: str | None
    rows: int
    #: First offset and the one after the last, per partition.
    offsets: Mapping[int, tuple[int, int]]
