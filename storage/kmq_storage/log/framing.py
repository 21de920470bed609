"""Framing: from the bound entries of a commit to the bytes of its frame, under the append lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage.format.checksum import checksum
from kmq_storage.format.entries import INLINE_ENTRY_BYTES, Entry, RecordsEntry, encode_entry
from kmq_storage.format.frame import BodyLayout, FrameHeader, encode_frame, layout
from kmq_storage.log.cursor import Cursor


@dataclass(frozen=True, slots=True)
class Stamp:
    """The facts about its writing that a frame's header holds."""

    #: UTC microseconds.
    time: int
    nonce: bytes
    durable_lsn: int


@dataclass(frozen=True, slots=True)
class Framed:
    """A commit whose batches have their positions in the frame."""

    entries: list[Entry]
    directory: bytes
    bodies: Sequence[pa.Buffer]
    placed: BodyLayout

    def frame(self, after: Cursor, stamp: Stamp, seed: int) -> list[bytes | pa.Buffer]:
        """The buffers of the frame, for the place `after` in the log."""
        header = FrameHeader(
            after.lsn + 1,
            self.placed.length,
            stamp.time,
            stamp.nonce,
            after.chain or 0,
            stamp.durable_lsn,
            len(self.entries),
            len(self.directory),
            checksum(self.directory),
            self.placed.body_position,
        )
        return encode_frame(header, self.directory, self.placed, self.bodies, seed)


def framed(entries: Sequence[Entry], bodies: Sequence[pa.Buffer]) -> Framed:
    """Give the inline batches of a commit their positions in the frame, and encode its entries.

    The positions depend on the directory's length, which is known before the entries of inline
    batches are encoded, because these have a fixed length.
    """
    at_places, parts, inline = list(entries), [], []
    length = 0
    for number, entry in enumerate(entries):
        if isinstance(entry, RecordsEntry) and not entry.staged:
            inline.append((number, entry))
            parts.append(b"")
            length += INLINE_ENTRY_BYTES
        else:
            parts.append(encode_entry(entry))
            length += len(parts[-1])
    placed = layout(length, bodies)
    for (number, entry), position in zip(inline, placed.positions, strict=True):
        at_places[number] = entry.at(position)
        parts[number] = encode_entry(at_places[number])
    return Framed(at_places, b"".join(parts), bodies, placed)
