"""Where a message stands, as files say it of messages that their own lists point at."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_PLACE = struct.Struct("<QII")
#: No file is longer, and no library takes more.
_END_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message stands in a file, and its CRC."""

    position: int
    length: int
    checksum: int

    #: Bytes of `pack`.
    SIZE = _PLACE.size

    def pack(self) -> bytes:
        """It as bytes of fixed width."""
        return _PLACE.pack(self.position, self.length, self.checksum)

    @property
    def end(self) -> int:
        """The position behind the message."""
        return self.position + self.length


def unpack_place(packed: bytes) -> MessagePlace:
    """What `MessagePlace.pack` made; ValueError when it is in no file, as damaged bytes may say."""
    place = MessagePlace(*_PLACE.unpack(packed))
    check_place(place.position, place.length)
    return place


def check_place(position: int, length: int) -> None:
    """ValueError for a place beyond what any file may have."""
    if position + length > _END_MAX:
        raise ValueError(f"no file has {length} bytes at {position}")
