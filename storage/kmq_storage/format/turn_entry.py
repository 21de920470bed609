"""The entry of an optimistic change: it is valid only if nobody changed what its author read."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnEntry:
    """The commit changes a lane of a topic, and is valid only if `seen` covers its last change."""

    topic_id: bytes
    #: Changes of the same lane are serialised.
    lane: int
    #: The author had read all commits up to this LSN.
    seen: int

    kind = 23
    _layout = struct.Struct("<16sIxxxxQ")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        return self._layout.pack(self.topic_id, self.lane, self.seen)

    @classmethod
    def parse(cls, payload: bytes) -> TurnEntry:
        """The entry of a binary form."""
        return cls(*cls._layout.unpack(payload))
