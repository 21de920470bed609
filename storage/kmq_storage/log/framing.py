"""From the entries of a commit to the bytes of its frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from kmq_storage.environment import Environment
from kmq_storage.format.checksum import checksum
from kmq_storage.format.entries import Entry, RecordsEntry, encode_entries
from kmq_storage.format.frame import FrameHeader, encode_frame, layout
from kmq_storage.log.journal import Cursor


@dataclass(frozen=True, slots=True)
class Frame:
    """A commit as it will be stored."""

    header: FrameHeader
    #: With the position of each batch inside the frame.
    entries: tuple[Entry, ...]
    buffers: tuple[bytes | pa.Buffer, ...]


def frame_after(
    cursor: Cursor,
    entries: Sequence[Entry],
    bodies: Sequence[pa.Buffer],
    *,
    environment: Environment,
    durable_lsn: int,
    seed: int,
) -> Frame:
    """The frame of these bound entries, behind the commit at the cursor."""
    directory_length = len(encode_entries(entries))
    placed = layout(directory_length, bodies)
    entries = _placed(entries, placed.positions)
    directory = encode_entries(entries)
    header = FrameHeader(
        cursor.lsn + 1,
        placed.length,
        max(environment.now_us(), cursor.time + 1),
        environment.new_uuid().bytes,
        cursor.chain or 0,
        durable_lsn,
        len(entries),
        directory_length,
        checksum(directory),
        placed.body_position,
    )
    buffers = encode_frame(header, directory, placed, bodies, seed)
    return Frame(header, tuple(entries), tuple(buffers))


def _placed(entries: Sequence[Entry], positions: Sequence[int]) -> list[Entry]:
    """The entries, with the batches inside the frame at their positions."""
    remaining = iter(positions)
    return [
        replace(entry, position=next(remaining))
        if isinstance(entry, RecordsEntry) and not entry.staged
        else entry
        for entry in entries
    ]
