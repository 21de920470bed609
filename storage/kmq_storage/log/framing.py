"""From bound entries to the frame that is written: the last step of a commit, under the lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kmq_storage.format.checksum import checksum
from kmq_storage.format.entries import Entry, RecordsEntry, directory_length, encode_entries
from kmq_storage.format.frame import BodyLayout, FrameHeader, encode_frame, layout

if TYPE_CHECKING:
    from kmq_storage.log.journal import Cursor


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a frame says of its writing."""

    #: UTC microseconds.
    time: int
    nonce: bytes
    durable_lsn: int


@dataclass(frozen=True, slots=True)
class Framed:
    """A commit with every batch at its place."""

    entries: list[Entry]
    bodies: Sequence[pa.Buffer]
    placed: BodyLayout

    def frame(self, after: Cursor, stamp: Stamp, seed: int) -> list[bytes | pa.Buffer]:
        """The buffers of the frame that follows this place in the log."""
        directory = encode_entries(self.entries)
        header = FrameHeader(
            after.lsn + 1,
            self.placed.length,
            stamp.time,
            stamp.nonce,
            after.chain or 0,
            stamp.durable_lsn,
            len(self.entries),
            len(directory),
            checksum(directory),
            self.placed.body_position,
        )
        return encode_frame(header, directory, self.placed, self.bodies, seed)


def framed(entries: Sequence[Entry], bodies: Sequence[pa.Buffer]) -> Framed:
    """Place the batches of a commit inside its frame."""
    placed = layout(directory_length(entries), bodies)
    positions = iter(placed.positions)
    at_places = [
        entry.at(next(positions)) if isinstance(entry, RecordsEntry) and not entry.staged else entry
        for entry in entries
    ]
    return Framed(at_places, bodies, placed)
