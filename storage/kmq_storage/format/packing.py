"""Packing of record batch messages: equal buffers are written once, with a checksum per column.

A segment has columns of nulls for headers and properties that no record has; their equal buffers
are written once. The running checksum of a message is noted behind each column. So the bytes of
one column are verified by the two values around them. These *parts* are in a segment's footer. A
large batch of a typed topic that is not sealed yet has them behind its message.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from kmq_storage.format.checksum import Bytes, checksum
from kmq_storage.format.message import MessageHead, buffers_in, head_length, message_length
from kmq_storage.model import Chunk

#: The end of a part of a message, and the CRC of all bytes up to there.
PART = struct.Struct("<II")
_NUMBER = 4
#: A typed topic's batch has its parts behind the message from this size on. Shorter messages are
#: read whole about as fast.
PROVEN_BYTES_MIN = 64 * 1024
#: The most bytes of a message's head and of its parts that are read to find the parts. A message
#: that needs more is read whole.
HEAD_BYTES_MAX, PARTS_BYTES_MAX = 64 * 1024, 8 * 1024
#: Smaller buffers are not compared.
_SHARED_BYTES = 64
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class PackedMessage:
    """The bytes of a record batch message, and its checksums."""

    buffers: list[Bytes]
    head_length: int
    body_length: int
    checksum: int
    #: A PART for the bytes before the body, then one per column. A column whose part is empty has
    #: its bytes in the part before.
    parts: bytes

    @property
    def length(self) -> int:
        """The length of the whole message."""
        return self.head_length + self.body_length

    def with_parts(self) -> tuple[list[Bytes], int]:
        """The message with its parts behind it, and the checksum of both."""
        return [*self.buffers, self.parts], checksum(self.parts, self.checksum)


def packed(pieces: Sequence[Bytes], schema: pa.Schema) -> PackedMessage:
    """A message from the pieces in which pyarrow writes it."""
    head, at = _split(pieces)
    body = _Body()
    entries = iter(head.buffers())
    starts: list[int] = []
    ends: list[int] = []
    for field in schema:
        first = len(starts)
        body.begin_column()
        for _ in range(_buffers_in(field.type)):
            start, length = next(entries)
            starts.append(body.add(at[start]) if length else body.length)
        lowest = min(starts[first:], default=body.length)
        within = bisect_right(ends, lowest)  # ends never decrease
        ends[within:] = [body.length] * (len(ends) + 1 - within)
    assert next(entries, None) is None, "a column has more buffers than its type says"
    return _proven(head.placed(starts, body.length), body, ends)


_buffers_in = lru_cache(maxsize=256)(buffers_in)


def _split(pieces: Sequence[Bytes]) -> tuple[MessageHead, dict[int, Bytes]]:
    """The head of a message, and the pieces of its body by their positions."""
    start, count = b"", 0
    while len(start) < 8 or len(start) < head_length(start):
        start += bytes(pieces[count])
        count += 1
    position, at = 0, {}
    for piece in pieces[count:]:
        at[position] = piece
        position += len(piece)
    return MessageHead(start), at


class _Body:
    """The buffers of a body; a buffer that a column shares with its neighbour is added once."""

    def __init__(self) -> None:
        self.pieces: list[Bytes] = []
        self.length = 0
        self._before: dict[tuple[int, int], int] = {}
        self._here: dict[tuple[int, int], int] = {}

    def begin_column(self) -> None:
        """Begin the next column."""
        self._before, self._here = self._here, {}

    def add(self, piece: Bytes) -> int:
        """Add a buffer; returns its position."""
        if not isinstance(piece, pa.Buffer) or piece.size < _SHARED_BYTES:
            return self._append(piece)
        key = (piece.address, piece.size)
        known = self._before.get(key)
        start = self._here[key] = self._append(piece) if known is None else known
        return start

    def _append(self, piece: Bytes) -> int:
        start, padding = self.length, bytes(-len(piece) % _ALIGNMENT)
        self.pieces += [piece, padding] if padding else [piece]
        self.length += len(piece) + len(padding)
        return start


def _proven(head: bytes, body: _Body, ends: Sequence[int]) -> PackedMessage:
    found = checksum(head)
    position, known = 0, {0: found}
    for piece in body.pieces:
        found = checksum(piece, found)
        position += len(piece)
        known[position] = found
    parts = b"".join(PART.pack(len(head) + end, known[end]) for end in (0, *ends))
    return PackedMessage([head, *body.pieces], len(head), body.length, found, parts)


def parts_length(columns: int) -> int:
    """The length of the parts of a message with this many columns."""
    return PART.size * (columns + 1)


def parts_behind(message: pa.Buffer, expected: int) -> bytes:
    """The parts behind a message; empty if there are none or they are damaged.

    Only the head of the message and its end are read. `expected` is the checksum of message and
    parts; it can be computed from the parts alone, which tell the checksum before them.
    """
    length = message_length(message)
    behind = message.size - length if length else 0
    if not 0 < behind <= PARTS_BYTES_MAX or behind % PART.size:
        return b""
    parts: bytes = message.slice(length).to_pybytes()
    _, before = PART.unpack(parts[-PART.size :])
    return parts if checksum(parts, before) == expected else b""


def with_parts(chunk: Chunk, message: pa.Buffer) -> Chunk:
    """The chunk with the parts behind its message, if there are any."""
    parts = parts_behind(message, chunk.checksum)
    return replace(chunk, parts=parts) if parts else chunk


class Part(NamedTuple):
    """Bytes [start, end) of a message, and the CRC of the message up to both ends."""

    start: int
    end: int
    before: int
    behind: int


def parts_of(chunk: Chunk, columns: tuple[int, ...] | None) -> tuple[Part, ...]:
    """The parts to verify to read these columns of a chunk; neighbouring parts are joined.

    One part for the whole message if `columns` is None, or if the chunk has no parts.
    """
    if columns is None or not chunk.parts:
        return (Part(0, chunk.location.length, 0, chunk.checksum),)
    return _parts_of(chunk.parts, columns)


@lru_cache(maxsize=64)
def _parts_of(parts: bytes, columns: tuple[int, ...]) -> tuple[Part, ...]:
    numbers = struct.unpack(f"<{len(parts) // _NUMBER}I", parts)
    ends, known = (0, *numbers[::2]), (0, *numbers[1::2])
    found: list[Part] = []
    for number in sorted({0, *(_standing(ends, column + 1) for column in columns)}):
        start, before = ends[number], known[number]
        if found and found[-1].end == start:
            start, before = found[-1].start, found.pop().before
        found.append(Part(start, ends[number + 1], before, known[number + 1]))
    return tuple(found)


def _standing(ends: Sequence[int], part: int) -> int:
    """The number of the part that has the bytes of `part`, which may be empty itself."""
    while ends[part + 1] == ends[part]:
        part -= 1
    return part
