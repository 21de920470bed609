"""Records out of an archive: ranges of offsets, and the files that can hold them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmq_spark.lake.files import ArchivedFile, ArchivedFiles, archived_files, record_weight
from kmq_spark.lake.places import ArchivePlace, fixed
from kmq_spark.lake.record import ArchiveRecord, ArchiveRecords, Span
from kmq_spark.lake.rows import BATCH_ROWS, rows_of
from kmq_storage.cached import cached_property
from kmq_storage.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """Records of one partition from start up to, not including, end, and their files."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    start: int
    end: int
    files: tuple[ArchivedFile, ...]
    place: ArchivePlace
    record: ArchiveRecord

    @property
    def bytes(self) -> int:
        """The estimated bytes to read: of each file, the share of its offsets."""
        return sum(_share(each, self.start, self.end) for each in self.files)

    @property
    def lost(self) -> list[Span]:
        """The ranges of its offsets that were lost before they were archived."""
        return self.record.lost(self.topic_id, self.partition, self.start, self.end)

    def absent(self, *, days_are_gone: bool = False) -> list[Span]:
        """The ranges of its other offsets that no file can have.

        Rows that were deleted leave short ones between two files: those count that are longer than
        half of the shorter file. If the first days are gone, records of theirs that came late are
        gone from among those of the first day that is left.
        """
        held = [(low, end, 0, "") for low, end in self.lost]
        for file in self.files:
            if file.offsets is None:
                return []
            low, high = file.offsets
            held.append((low, high + 1, high + 1 - low, file.day))
        first = min((each.day for each in self.files), default="") if days_are_gone else None
        found, position, before, day = [], self.start, 0, ""
        for low, end, size, own in [*sorted(held), (self.end, self.end, 0, "")]:
            came_late = day == first and low < self.end
            if 2 * (low - position) > min(before, size) and not came_late:
                found.append((position, low))
            if end >= position:
                position, before, day = end, size, own
        return found

    def between(self, start: int, end: int) -> ArchivedRange:
        """Some of these records."""
        files = tuple(each for each in self.files if each.may_hold(self.partition, start, end))
        return replace(self, start=start, end=end, files=files)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the records in offset order, with a schema's columns; missing ones are null.

        The whole range is held in memory, beside one record batch of a file. `between` makes
        smaller ranges.
        """
        by = self.record.column("offset")
        columns = schema if by in schema.names else schema.append(pa.field(by, pa.int64()))
        found = [batch for file in self.files for batch in self._in(file, columns)]
        yield from _in_order(found, by)

    def _in(self, file: ArchivedFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = rows_of(
            self.place,
            self.record,
            file,
            columns,
            where=lambda group: group.may_hold(self.partition, self.start, self.end),
            which=self._has,
        )
        return (batch for batch in rows if batch.num_rows)

    def _has(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        column = self.record.column
        offsets = rows.column(column("offset"))
        inside = pc.and_(
            pc.greater_equal(offsets, pa.scalar(self.start, pa.int64())),
            pc.less(offsets, pa.scalar(self.end, pa.int64())),
        )
        own = pc.and_(
            pc.equal(rows.column(column("topicId")), self.topic_id.hex),
            pc.equal(rows.column(column("partition")), pa.scalar(self.partition, pa.int32())),
        )
        return pc.and_(own, inside)


def _in_order(batches: Sequence[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows by offset; nothing is copied where batches are in order, as the job writes."""
    known = sorted(batches, key=lambda each: each.column(column)[0].as_py())
    offsets = np.concatenate([np.empty(0, np.int64), *(each.column(column) for each in known)])
    if (np.diff(offsets) > 0).all():
        yield from known
    else:
        yield from pa.Table.from_batches(known).sort_by(column).to_batches(BATCH_ROWS)


@dataclass(frozen=True)
class Archive:
    """An archive: its record, and its files by offset as of their first use."""

    place: ArchivePlace
    record: ArchiveRecord
    _by_topic: dict[str, tuple[ArchivedFile, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def _found(self) -> ArchivedFiles:
        return archived_files(self.place, self.record)

    @property
    def files(self) -> tuple[ArchivedFile, ...]:
        """All files of the archive, by offset."""
        return self._found.files

    @property
    def missing(self) -> tuple[str, ...]:
        """What is known to be missing of it, by name."""
        return self._found.missing

    def files_of(self, topic: str) -> tuple[ArchivedFile, ...]:
        """Return a topic's files; their `bytes` are at least what the records take in memory."""
        if topic not in self._by_topic:
            files = [each for each in self.files if each.topic == topic]
            largest = max(files, key=lambda each: each.rows, default=None)
            weight = 0 if largest is None else record_weight(self.place, largest.path)
            self._by_topic[topic] = tuple(
                replace(each, bytes=max(each.bytes, each.rows * weight)) for each in files
            )
        return self._by_topic[topic]

    def range(
        self, topic: str, topic_id: uuid.UUID, partition: int, start: int, end: int
    ) -> ArchivedRange:
        """A range of offsets with the files that can hold them."""
        within = (self.files_of(topic), self.place, self.record)
        return ArchivedRange(topic, topic_id, partition, start, end, *within).between(start, end)

    def first_held(
        self, topic: str, topic_id: uuid.UUID, partition: int, start: int, end: int
    ) -> int:
        """The first of these offsets that a file may have, or that was never archived; else end."""
        held = (each for each in self.files_of(topic) if each.may_hold(partition, start, end))
        low, _ = next(((each.offsets or (start, 0)) for each in held), (end, 0))
        firsts = (start for start, _ in self.record.lost(topic_id, partition, start, end))
        return min(max(low, start), *firsts, end)

    def first_since(
        self, topic: str, topic_id: uuid.UUID, partitions: Sequence[int], when: datetime
    ) -> dict[int, int]:
        """The first archived offset with timestamp >= when, of the partitions that have one."""
        found: dict[int, int] = {}
        for each in self.files:
            if each.topic != topic or not each.may_reach(when):
                continue
            if each.offsets is not None and _all_before(found, partitions, each.offsets[0]):
                break  # files come by offset: this one and the rest hold later ones only
            for partition, offset in self._first_in(each, topic_id, when).items():
                found[partition] = min(offset, found.get(partition, offset))
        return {p: found[p] for p in partitions if p in found}

    def _first_in(self, file: ArchivedFile, topic_id: uuid.UUID, when: datetime) -> dict[int, int]:
        column = self.record.column
        since = pa.scalar(when, pa.timestamp("us", "UTC"))
        rows = rows_of(
            self.place,
            self.record,
            file,
            pa.schema([(column("partition"), pa.int32()), (column("offset"), pa.int64())]),
            where=lambda group: group.may_reach(when),
            which=lambda rows: pc.and_(
                pc.equal(rows.column(column("topicId")), topic_id.hex),
                pc.greater_equal(rows.column(column("timestamp")), since),
            ),
        )
        first: dict[int, int] = {}
        for batch in rows:
            table = pa.Table.from_batches([batch]).group_by(column("partition"))
            for each in table.aggregate([(column("offset"), "min")]).to_pylist():
                partition, offset = each[column("partition")], each[f"{column('offset')}_min"]
                first[partition] = min(offset, first.get(partition, offset))
        return first


def open_archive(
    path: str, store_id: uuid.UUID, storage_options: Mapping[str, str] | None = None
) -> Archive:
    """The archive at a path; NotFoundError for none, InvalidRequestError for another store's."""
    place = ArchivePlace(fixed(path), storage_options or {})
    record = ArchiveRecords(place).newest()
    if record is None:
        raise NotFoundError(
            f"Archive[{place.url}] doesn't exist: `kmq archive` or kmq_spark.archive makes one"
        )
    record.check_store(place.url, store_id)
    return Archive(place, record)


def _share(file: ArchivedFile, start: int, end: int) -> int:
    if file.offsets is None:
        return file.bytes
    low, high = int(file.offsets[0]), int(file.offsets[1]) + 1
    # A file with more rows than offsets has several partitions; one with fewer was compacted.
    return file.bytes * max(min(end, high) - max(start, low), 0) // max(high - low, file.rows)


def _all_before(found: dict[int, int], partitions: Sequence[int], offset: int) -> bool:
    return all(found.get(partition, offset) < offset for partition in partitions)
