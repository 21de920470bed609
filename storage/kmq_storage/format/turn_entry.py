"""The entry of a change that was made of what somebody read, and stands only if nobody else did."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnEntry:
    """The commit follows all that was changed in one lane of a topic, and is a change there."""

    topic_id: bytes
    #: What is changed one after the other.
    lane: int
    #: The author read all commits up to this LSN.
    seen: int

    kind = 23
    _layout = struct.Struct("<16sIxxxxQ")

    def payload(self) -> bytes:
        """The binary form."""
        return self._layout.pack(self.topic_id, self.lane, self.seen)

    @classmethod
    def parse(cls, payload: bytes) -> TurnEntry:
        """The entry of a binary form."""
        return cls(*cls._layout.unpack(payload))
