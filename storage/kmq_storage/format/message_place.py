"""The position, length and checksum of a message, as lists and footers of files store them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_PLACE = struct.Struct("<QII")
#: The largest end of a message: no file is longer, and libraries refuse larger numbers.
_END_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message is in a file, and its CRC."""

    position: int
    length: int
    checksum: int

    #: The number of bytes that `pack` returns.
    SIZE = _PLACE.size

    def pack(self) -> bytes:
        """The binary form, of fixed width."""
        return _PLACE.pack(self.position, self.length, self.checksum)

    @property
    def end(self) -> int:
        """The position behind the message."""
        return self.position + self.length


def unpack_place(packed: bytes) -> MessagePlace:
    """Decode the bytes of `MessagePlace.pack`; ValueError when damage made the place impossible."""
    place = MessagePlace(*_PLACE.unpack(packed))
    check_place(place.position, place.length)
    return place


def check_place(position: int, length: int) -> None:
    """Raise ValueError for a place that no file can have."""
    if position + length > _END_MAX:
        raise ValueError(f"no file has {length} bytes at {position}")
