"""Records out of an archive: ranges of offsets, and the files that can hold them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kmq_spark.lake.files import ArchivedFile, archived_files, record_weight
from kmq_spark.lake.places import ArchivePlace, fixed
from kmq_spark.lake.record import ArchiveRecord, ArchiveRecords, Span
from kmq_storage.errors import NotFoundError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_BATCH_ROWS = 65_536


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
        """About how much there is to read: the share of each file that its offsets promise."""
        return sum(_share(each, self.start, self.end) for each in self.files)

    @property
    def lost(self) -> list[Span]:
        """What of it was lost before it was archived, as ranges of offsets."""
        return self.record.lost(self.topic_id, self.partition, self.start, self.end)

    def between(self, start: int, end: int) -> ArchivedRange:
        """Some of these records."""
        files = tuple(each for each in self.files if each.may_hold(self.partition, start, end))
        return replace(self, start=start, end=end, files=files)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The records in offset order, with the columns of this schema that are in the files.

        A range is held in memory as a whole: `between` makes it smaller.
        """
        if not self.files:
            return
        column = self.record.column
        wanted = (
            (pc.field(column("topicId")) == self.topic_id.hex)
            & (pc.field(column("partition")) == self.partition)
            & (pc.field(column("offset")) >= self.start)
            & (pc.field(column("offset")) < self.end)
        )
        names = list({*schema.names, column("offset")})
        rows = _dataset(self.place, self.files, schema, self.record).to_table(
            names, filter=wanted, batch_readahead=1, fragment_readahead=1
        )
        yield from rows.sort_by(column("offset")).to_batches(_BATCH_ROWS)


@dataclass(frozen=True)
class Archive:
    """An archive: its record, and its files by offset, as they are when they are first needed."""

    place: ArchivePlace
    record: ArchiveRecord
    _by_topic: dict[str, tuple[ArchivedFile, ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def files(self) -> tuple[ArchivedFile, ...]:
        """All files of the archive."""
        return tuple(archived_files(self.place, self.record))

    def files_of(self, topic: str) -> tuple[ArchivedFile, ...]:
        """The files of a topic, of no fewer bytes than their records take in memory."""
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
        schema = pa.schema([(column("partition"), pa.int32()), (column("offset"), pa.int64())])
        wanted = (pc.field(column("topicId")) == topic_id.hex) & (
            pc.field(column("timestamp")) >= pa.scalar(when, pa.timestamp("us", "UTC"))
        )
        rows = _dataset(self.place, [file], schema, self.record).to_table(
            schema.names, filter=wanted
        )
        first = rows.group_by(column("partition")).aggregate([(column("offset"), "min")])
        offsets = first.column(f"{column('offset')}_min").to_pylist()
        return dict(zip(first.column(column("partition")).to_pylist(), offsets, strict=True))


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
    # More rows than offsets are of several partitions, fewer are what compaction left.
    return file.bytes * max(min(end, high) - max(start, low), 0) // max(high - low, file.rows)


def _all_before(found: dict[int, int], partitions: Sequence[int], offset: int) -> bool:
    return all(found.get(partition, offset) < offset for partition in partitions)


def _dataset(
    place: ArchivePlace, files: Sequence[ArchivedFile], schema: pa.Schema, record: ArchiveRecord
) -> ds.Dataset:
    """The files as one dataset with these columns, and those that rows are chosen by."""
    import pyarrow.dataset as ds

    # Spark writes timestamps as INT96 unless it is told otherwise.
    kind = ds.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    fields = {field.name: field for field in [*_chosen_by(record), *schema]}
    system, root = place.file_system()
    paths = [f"{root}/{each.path}" for each in files]
    return ds.dataset(paths, pa.schema(fields.values()), format=kind, filesystem=system)


def _chosen_by(record: ArchiveRecord) -> pa.Schema:
    kinds = {
        "topicId": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return pa.schema([(record.column(name), kind) for name, kind in kinds.items()])
