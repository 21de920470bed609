"""Entries that change where records are stored and which are kept, but never their content.

Each names the LSN of the state on which it was planned. Binding refuses it when the layout of the
partition changed since, so several maintainers at once do no harm.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kmq_storage.format.records import COMPACTED

#: The value of `SegmentEntry.tombstones` when a compaction found no tombstone that has to wait.
NO_TOMBSTONES = 1


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """The records of a partition with offsets in [base, end) are in a segment from now on."""

    topic_id: bytes
    partition: int
    base_offset: int
    #: The offset after the last one that is covered, even if compaction dropped the last record.
    end_offset: int
    rows: int
    file_id: bytes
    #: Bytes of the whole file.
    length: int
    #: Where the footer begins, and the CRC of everything from there on.
    footer_position: int
    footer_checksum: int
    #: The columns of the batches, as flags (`format.records`).
    columns: int
    min_timestamp: int
    max_timestamp: int
    #: When the newest of the records was committed, UTC microseconds.
    time: int
    #: Bytes of keys, values, headers and properties.
    size: int
    #: The number and bytes of the replaced records in [base, end).
    old_rows: int
    old_size: int
    planned_lsn: int
    #: The second (UTC) by which the partition's waiting tombstones were committed; NO_TOMBSTONES if
    #: none wait, or 0 if that is unknown.
    tombstones: int = 0

    kind = 7
    _layout = struct.Struct("<16sIHxxQQQ16sQQIIqqqQQQQ")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
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
        """`Partition.tombstones` after this entry.

        A compaction knows all tombstones of the partition, but a seal only those that it sealed.
        """
        if self.columns & COMPACTED and self.tombstones:
            return 0 if self.tombstones == NO_TOMBSTONES else self.tombstones
        return before or self.tombstones


@dataclass(frozen=True, slots=True)
class TrimEntry:
    """The start of a partition is raised: earlier records are dropped."""

    topic_id: bytes
    partition: int
    #: The new start.
    start: int
    #: The number and bytes of the dropped records.
    rows: int
    size: int
    planned_lsn: int

    kind = 8
    _layout = struct.Struct("<16sIxxxxQQQQ")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        return self._layout.pack(
            self.topic_id, self.partition, self.start, self.rows, self.size, self.planned_lsn
        )

    @classmethod
    def parse(cls, payload: bytes) -> TrimEntry:
        """The entry of a binary form."""
        return cls(*cls._layout.unpack(payload))


@dataclass(frozen=True, slots=True)
class GapEntry:
    """A repair cut out records that can't be read; readers get DataLossError there."""

    topic_id: bytes
    partition: int
    #: Offsets in [start, end).
    start: int
    end: int
    rows: int
    size: int
    planned_lsn: int
    reason: str
    #: The messages of keyed queues among them (`format.lost_messages`); None if unknown.
    lost: bytes | None = None

    kind = 9
    _layout = struct.Struct("<16sIIQQQQQ")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        reason = self.reason.encode()
        fixed = self._layout.pack(
            self.topic_id,
            self.partition,
            0 if self.lost is None else len(reason),
            self.start,
            self.end,
            self.rows,
            self.size,
            self.planned_lsn,
        )
        return fixed + reason + (self.lost or b"")

    @classmethod
    def parse(cls, payload: bytes) -> GapEntry:
        """The entry of a binary form."""
        topic_id, partition, length, *facts = cls._layout.unpack_from(payload)
        start, end, rows, size, planned = facts
        rest = payload[cls._layout.size :]
        reason, lost = (rest[:length], rest[length:]) if length else (rest, None)
        return cls(topic_id, partition, start, end, rows, size, planned, reason.decode(), lost)


@dataclass(frozen=True, slots=True)
class CondemnEntry:
    """No later commit may name a new staged file or segment that was begun before an LSN.

    Files that were named before stay valid. All others may be deleted.
    """

    #: Files are condemned if they were begun before this LSN (`file_ids.begun_at`).
    before: int

    kind = 11
    _layout = struct.Struct("<Q")

    def payload(self) -> bytes:
        """The bytes of this entry in a commit, without its kind."""
        return self._layout.pack(self.before)

    @classmethod
    def parse(cls, payload: bytes) -> CondemnEntry:
        """The entry of a binary form."""
        return cls(*cls._layout.unpack(payload))


LayoutEntry = SegmentEntry | TrimEntry | GapEntry
