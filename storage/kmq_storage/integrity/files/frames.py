"""Checks one frame: its record batches are intact, and there are only zeros between its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from kmq_storage.format.checksum import checksum
from kmq_storage.format.entries import Entry, RecordsEntry
from kmq_storage.format.frame import HEADER_BYTES, TRAILER_BYTES, FrameHeader, part_of
from kmq_storage.integrity.files.blank import first_mark
from kmq_storage.integrity.report import Damage
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.objects.files import Bytes


def check_frame(
    raw: pa.Buffer, header: FrameHeader, entries: Sequence[Entry], file: str, state: StoreState
) -> Iterator[Damage]:
    """The damage inside a frame whose header, directory and trailer were already checked."""
    ends = [(HEADER_BYTES + header.directory_length, HEADER_BYTES)]
    for entry in entries:
        if isinstance(entry, RecordsEntry) and not entry.staged:
            ends.append((entry.position + entry.length, entry.position))
            message = part_of(raw, entry.position, entry.length)
            if message.size < entry.length or checksum(message) != entry.checksum:
                yield _damaged_batch(header, entry, file, state)
    yield from marks(raw.slice, _paddings(header, sorted(ends)), file, f" of commit {header.lsn}")


def _damaged_batch(
    header: FrameHeader, entry: RecordsEntry, file: str, state: StoreState
) -> Damage:
    topic = state.topic_by_id(entry.topic_id)
    return Damage(
        file,
        entry.topic_id.hex() if topic is None else topic.name,
        entry.partition,
        entry.base_offset,
        entry.base_offset + entry.rows,
        f"record batch checksum of commit {header.lsn} does not match",
    )


def _paddings(header: FrameHeader, parts: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans between the parts of a frame; the parts are given as (end, begin)."""
    begins = [begin for _, begin in parts[1:]] + [header.length - TRAILER_BYTES]
    for (end, _), begin in zip(parts, begins, strict=True):
        yield end, begin


def marks(
    read: Callable[[int, int], Bytes], spans: Iterable[tuple[int, int]], file: str, what: str = ""
) -> Iterator[Damage]:
    """The damage where bytes of these spans are not zero."""
    for start, end in spans:
        mark = first_mark(read, start, end)
        if mark is not None:
            yield Damage(file, reason=f"byte {mark}{what} is not zero; it is part of no record")
