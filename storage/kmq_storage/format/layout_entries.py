"""Entries that change where records stand and which are kept, never what they say.

Each names the LSN of the state it was planned on: binding refuses it when the same
partition was laid out anew since, so two maintainers at once do no harm.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kmq_storage.format.records import COMPACTED

#: What a compaction says that found no tombstone which has to wait.
NO_TOMBSTONES = 1


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """The records of a partition with offsets in [base, end) stand in a segment from now on."""

    topic_id: bytes
    partition: int
    base_offset: int
    #: The offset after the last one that is covered, though compaction may have dropped it.
    end_offset: int
    rows: int
    file_id: bytes
    #: Bytes of the whole file.
    length: int
    #: Where the Arrow footer's part of the file begins, and the CRC of everything from there on.
    footer_position: int
    footer_checksum: int
    #: Which columns the batches have (`format.records`).
    columns: int
    min_timestamp: int
    max_timestamp: int
    #: When the newest of the records was committed, UTC microseconds.
    time: int
    #: Bytes of keys, values, headers and properties.
    size: int
    #: What stood in [base, end) before: rows and bytes.
    old_rows: int
    old_size: int
    planned_lsn: int
    #: A second (UTC) by which the tombstones were committed that wait in the partition to be
    #: dropped; NO_TOMBSTONES, or 0 where nothing is said of it.
    tombstones: int = 0

    kind = 7
    _layout = struct.Struct("<16sIHxxQQQ16sQQIIqqqQQQQ")

    def payload(self) -> bytes:
        """The binary form."""
        return self._layout.pack(
            self.topic_id,
            self.partition,
            self.columns,
            self.base_offset,
            self.end_offset,
            self.rows,
            self.file_id,
            self.length,
            self.footer_position,
            self.footer_checksum,
            self.tombstones,
            self.min_timestamp,
            self.max_timestamp,
            self.time,
            self.size,
            self.old_rows,
            self.old_size,
            self.planned_lsn,
        )

    @classmethod
    def parse(cls, payload: bytes) -> SegmentEntry:
        """The entry of a binary form."""
        topic_id, partition, columns, base, end, rows, file_id, *rest = cls._layout.unpack(payload)
        length, footer, check, tombstones, *facts = rest
        facts.append(tombstones)
        return cls(
            topic_id, partition, base, end, rows, file_id, length, footer, check, columns, *facts
        )

    def waiting(self, before: int) -> int:
        """What `tombstones` waits after it: compaction knows of all, sealing of what it sealed."""
        if self.columns & COMPACTED and self.tombstones:
            return 0 if self.tombstones == NO_TOMBSTONES else self.tombstones
        return before or self.tombstones


@dataclass(frozen=True, slots=True)
class TrimEntry:
    """The records of a partition before an offset are given up."""

    topic_id: bytes
    partition: int
    #: The new start.
    start: int
    #: What the partition no longer holds: rows and bytes.
    rows: int
    size: int
    planned_lsn: int

    kind = 8
    _layout = struct.Struct("<16sIxxxxQQQQ")

    def payload(self) -> bytes:
        """The binary form."""
        return self._layout.pack(
            self.topic_id, self.partition, self.start, self.rows, self.size, self.planned_lsn
        )

    @classmethod
    def parse(cls, payload: bytes) -> TrimEntry:
        """The entry of a binary form."""
        return cls(*cls._layout.unpack(payload))


@dataclass(frozen=True, slots=True)
class GapEntry:
    """Records that can't be read any more were cut out; readers get DataLossError there."""

    topic_id: bytes
    partition: int
    #: Offsets in [start, end).
    start: int
    end: int
    rows: int
    size: int
    planned_lsn: int
    reason: str

    kind = 9
    _layout = struct.Struct("<16sIxxxxQQQQQ")

    def payload(self) -> bytes:
        """The binary form."""
        fixed = self._layout.pack(
            self.topic_id,
            self.partition,
            self.start,
            self.end,
            self.rows,
            self.size,
            self.planned_lsn,
        )
        return fixed + self.reason.encode()

    @classmethod
    def parse(cls, payload: bytes) -> GapEntry:
        """The entry of a binary form."""
        topic_id, partition, start, end, rows, size, planned = cls._layout.unpack_from(payload)
        reason = payload[cls._layout.size :].decode()
        return cls(topic_id, partition, start, end, rows, size, planned, reason)


@dataclass(frozen=True, slots=True)
class CondemnEntry:
    """From here on no commit names a staged file or segment that was begun before an LSN.

    Those that were named before stay what they are; all others may be deleted.
    """

    #: Of files whose writers knew no commit from this LSN on (`file_ids.begun_at`).
    before: int

    kind = 11
    _layout = struct.Struct("<Q")

    def payload(self) -> bytes:
        """The binary form."""
        return self._layout.pack(self.before)

    @classmethod
    def parse(cls, payload: bytes) -> CondemnEntry:
        """The entry of a binary form."""
        return cls(*cls._layout.unpack(payload))


LayoutEntry = SegmentEntry | TrimEntry | GapEntry
