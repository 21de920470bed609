"""The entry of records that a queue hands out at another time, or before others."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import NamedTuple


class Schedule(NamedTuple):
    """When a record that was sent to a queue is delivered, and with which priority."""

    #: The number of the record in its unit, from 0.
    row: int
    #: It is not delivered before this, UTC us; 0 for at once.
    at: int
    #: It is not delivered from this time on, UTC us.
    expires: int
    #: 0 to 9, the highest first.
    priority: int


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """Delays, expiries and priorities of records that the same unit has for a queue's own log."""

    queue_id: bytes
    #: The offset of the first record of the unit; set when the commit is bound.
    base_offset: int
    schedules: tuple[Schedule, ...]

    kind = 18
    _layout = struct.Struct("<16sQ")
    _row = struct.Struct("<IBxxxqq")

    def bound(self, base_offset: int) -> ScheduleEntry:
        """The entry with the offset of the first record."""
        return replace(self, base_offset=base_offset)

    def shifted(self, rows: int) -> ScheduleEntry:
        """The entry for records that have `rows` more before them in their unit."""
        return replace(self, schedules=tuple(s._replace(row=s.row + rows) for s in self.schedules))

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        rows = [
            self._row.pack(row, priority, at, expires)
            for row, at, expires, priority in self.schedules
        ]
        return self._layout.pack(self.queue_id, self.base_offset) + b"".join(rows)

    @classmethod
    def parse(cls, payload: bytes) -> ScheduleEntry:
        """The entry of a binary form."""
        rows = cls._row.iter_unpack(payload[cls._layout.size :])
        schedules = tuple(
            Schedule(row, at, expires, priority) for row, priority, at, expires in rows
        )
        queue_id, base_offset = cls._layout.unpack_from(payload)
        return cls(queue_id, base_offset, schedules)
