"""What a damaged batch of a run has, in words; only imported when there is one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from kmq_storage.format.message_place import MessagePlace
from kmq_storage.format.queue_directory import Directory
from kmq_storage.format.queue_table import QueueTable
from kmq_storage.format.segment import SegmentFooter
from kmq_storage.model import Chunk, Location


def queues_in_words(
    footer: SegmentFooter, chunk: Chunk, read: Callable[[Location], pa.Buffer]
) -> str:
    """The queues with messages in a batch of a run; CorruptionError when they can't be read."""
    file, base, last = chunk.location.file, footer.chunks[0].base_offset, footer.chunks[-1]

    def message(place: MessagePlace) -> pa.Buffer:
        return read(Location(file, place.position, place.length))

    if footer.directory is None:
        return ""
    rows = last.end_offset - base
    directory = Directory(message(footer.directory), footer.directory, file, rows)

    def table(block: int) -> QueueTable:
        return directory.decoded(block, message(directory.place(block)))

    first, behind = chunk.base_offset - base, chunk.end_offset - base
    queues = [directory.queue_of(row, table) for row in (first, behind - 1)]
    return f" (messages of the queues {queues[0]!r} to {queues[1]!r})"
