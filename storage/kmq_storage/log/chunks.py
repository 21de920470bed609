"""Where the record batches of one partition are: columns of numbers, found by bisection."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass

from kmq_storage.errors import CorruptionError
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.model import Chunk, Damage, Location


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets whose records stood in a damaged part of the log."""

    start: int
    end: int
    damage: Damage


class ChunkTable:
    """The chunks of one partition in offset order, some 60 bytes each.

    Appended to by one thread and read by others: the column of base offsets is appended to
    last, and readers see only rows that it has.
    """

    def __init__(self) -> None:
        self._base = array("Q")
        self._rows = array("I")
        self._file: list[str] = []
        self._position = array("Q")
        self._length = array("I")
        self._checksum = array("I")
        self._columns = array("H")
        self._low = array("q")
        self._high = array("q")
        self._size = array("Q")
        self.holes: list[Hole] = []

    def __len__(self) -> int:
        return len(self._base)

    def append(self, entry: RecordsEntry, file: str, position: int) -> None:
        """Add the next chunk; the position is the one in the file."""
        self._rows.append(entry.rows)
        self._file.append(file)
        self._position.append(position)
        self._length.append(entry.length)
        self._checksum.append(entry.checksum)
        self._columns.append(entry.columns)
        self._low.append(entry.min_timestamp)
        self._high.append(entry.max_timestamp)
        self._size.append(entry.size)
        self._base.append(entry.base_offset)

    def chunk(self, index: int) -> Chunk:
        """The chunk at this place in offset order."""
        return Chunk(
            self._base[index],
            self._rows[index],
            Location(self._file[index], self._position[index], self._length[index]),
            self._checksum[index],
            self._columns[index],
            self._low[index],
            self._high[index],
            self._size[index],
        )

    def first_at(self, offset: int) -> int:
        """The index of the chunk that holds this offset, or would."""
        return max(bisect_right(self._base, offset) - 1, 0)

    def between(self, start: int, end: int, limit: int | None = None) -> list[Chunk]:
        """Chunks with records in [start, end), at most `limit`."""
        if start >= end:
            return []
        found: list[Chunk] = []
        for index in range(self.first_at(start), len(self)):
            if self._base[index] >= end or len(found) == limit:
                break
            if self._base[index] + self._rows[index] > start:
                found.append(self.chunk(index))
        return found

    def check(self, topic: str, partition: int, start: int, end: int) -> None:
        """CorruptionError when records in [start, end) were lost with a damaged commit."""
        for hole in self.holes:
            if hole.start < end and start < hole.end:
                raise CorruptionError(
                    f"{topic}-{partition}: offsets {hole.start} to {hole.end - 1} can't be read, "
                    f"their commit in {hole.damage.file} is damaged ({hole.damage.reason})",
                    file=hole.damage.file,
                    topic=topic,
                    partition=partition,
                    start=hole.start,
                    end=hole.end,
                )

    def first_since(self, timestamp: int) -> Chunk | None:
        """The first chunk that has a record at or after this instant (UTC microseconds)."""
        for index, (_, high) in enumerate(zip(self._base, self._high, strict=False)):
            if high >= timestamp:
                return self.chunk(index)
        return None

    def size_from(self, offset: int) -> int:
        """Bytes of records at and after an offset; a chunk that is cut counts in proportion."""
        total = 0
        for index in range(self.first_at(offset), len(self)):
            rows, base = self._rows[index], self._base[index]
            wanted = base + rows - max(base, offset)
            if wanted > 0:
                total += self._size[index] * wanted // rows
        return total

    def timestamp_of(self, offset: int) -> int | None:
        """The lowest timestamp in the chunk that holds this offset."""
        index = self.first_at(offset)
        return self._low[index] if len(self) and self._base[index] <= offset else None
