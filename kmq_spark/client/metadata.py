"""Where records went: the results of sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The place of one record."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    #: Whether the record was there already and this is the first one's place.
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """The places of the rows of one Arrow batch."""

    topic: str
    rows: int
    #: First offset and the one after the last, per partition.
    offsets: Mapping[int, tuple[int, int]]
