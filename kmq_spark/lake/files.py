"""The files of an archive and what they may hold: from Delta's log, or from Parquet's footers.

Statistics decide whether a read has to open a file. They may be missing or too wide, but never
wrong: rows are chosen by their own columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from kmq_spark.lake.batches import no_files, whole_batches
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA, ArchiveRecord, ArchiveRecords
from kmq_storage.errors import CorruptionError, InvalidRequestError, UnavailableError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.parquet import FileMetaData, ParquetFile, RowGroupMetaData

#: Reader features of a Delta table with which its files can still be read as they are.
_HARMLESS = {
    *("timestampNtz", "typeWidening", "typeWidening-preview"),
    *("v2Checkpoint", "vacuumProtocolCheck"),
}

#: How many records, or packed bytes, at a file's beginning are read to estimate the size of all.
_SAMPLE_ROWS = 1_024
_SAMPLE_BYTES = 4 << 20

#: Packed columns are fetched in pieces of this size.
_BUFFER_BYTES = 1 << 20

#: Delta cuts the times in its statistics to milliseconds, downwards.
_TRUNCATED = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file with records of one topic, and the bounds of their values."""

    #: Relative to the archive.
    path: str
    topic: str
    #: A text that is in the order of days.
    day: str
    bytes: int
    rows: int
    #: Least and greatest partition, offset and timestamp (UTC); None where the file doesn't tell.
    partitions: tuple[Any, Any] | None
    offsets: tuple[Any, Any] | None
    times: tuple[Any, Any] | None

    def may_hold(self, partition: int, start: int, end: int) -> bool:
        """Whether a record of this partition from start up to, not including, end may be here."""
        own, held = self.partitions, self.offsets
        return (own is None or own[0] <= partition <= own[1]) and (
            held is None or (held[0] < end and start <= held[1])
        )

    def may_reach(self, when: datetime) -> bool:
        """Whether a record of this time, or of a later one, may be here."""
        return self.times is None or when - self.times[1] <= _TRUNCATED


@contextmanager
def opened(place: ArchivePlace, name: str) -> Iterator[ParquetFile]:
    """A Parquet file of an archive; its columns are fetched in pieces, as they are decoded.

    UnavailableError for a file that is gone, CorruptionError for one that is damaged.
    """
    from pyarrow.parquet import ParquetFile

    system, root = place.file_system()
    try:
        with system.open(f"{root}/{name}", "rb") as file:
            yield ParquetFile(
                file,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,  # of the pages that have one: Spark's do
                coerce_int96_timestamp_unit="us",  # which Spark writes unless it is told otherwise
            )
    except FileNotFoundError as error:
        raise UnavailableError(
            f"file {name} of archive {place.url} is gone: if others hold its records by now (after "
            "OPTIMIZE and VACUUM), load the read again (a stream: start it again)",
            file=name,
        ) from error
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the storage; Arrow's for data that it can't decode have no number
        raise CorruptionError(
            f"file {name} of archive {place.url} is damaged: {error}", file=name
        ) from error


@dataclass(frozen=True)
class ArchivedFiles:
    """All files of an archive, by offset, and what is known to be missing of it."""

    files: tuple[ArchivedFile, ...]
    missing: tuple[str, ...] = ()


def archived_files(place: ArchivePlace, record: ArchiveRecord) -> ArchivedFiles:
    """Return the files of the archive as it is now.

    The caller knows that records were archived: IllegalStateError when there are no files.
    """
    missing: list[str] = []
    if record.format == DELTA:
        found = _delta_files(place, record)
    else:
        last = ArchiveRecords(place).last_batch(record)  # before a look at what is there
        batches = whole_batches(place, last)
        found, missing = _parquet_files(place, record, batches.files), batches.missing
    files = sorted(found, key=lambda each: (each.offsets or (0, 0), each.path))
    return ArchivedFiles(tuple(files), tuple(missing))


def check_readable(place: ArchivePlace) -> None:
    """InvalidRequestError for a Delta table that can't be read by its files alone.

    A place without a table is readable, too.
    """
    table = _delta_table(place)
    if table is not None:
        _refuse_unreadable(place.url, table)


def _delta_table(place: ArchivePlace) -> DeltaTable | None:
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise InvalidRequestError(
            "an archive in Delta is read with delta-rs: pip install 'kmq-spark[delta]'"
        ) from error
    options = place.delta_options()
    if not DeltaTable.is_deltatable(place.url, options):
        return None
    return DeltaTable(place.url, storage_options=options)


def _delta_files(place: ArchivePlace, record: ArchiveRecord) -> Iterator[ArchivedFile]:
    table = _delta_table(place)
    if table is None:
        raise no_files(place)
    _refuse_unreadable(place.url, table)
    actions = pa.table(table.get_add_actions(flatten=True))
    # Statistics of a topic's own columns may have values that Python has no type for.
    facts = _facts(record)
    wanted = [name for name in actions.column_names if name in facts]
    for action in actions.select(wanted).to_pylist():
        yield _of_action(action, record)


def _facts(record: ArchiveRecord) -> set[str]:
    columns = [record.column(name) for name in ("partition", "offset", "timestamp")]
    bounds = {f"{end}.{column}" for end in ("min", "max") for column in columns}
    folders = {f"partition.{record.column(name)}" for name in ("topic", "day")}
    return {"path", "size_bytes", "num_records", *folders, *bounds}


def _refuse_unreadable(path: str, table: DeltaTable) -> None:
    features = set(table.protocol().reader_features or ())
    # Reader version 2 has column mapping without a list of features.
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if wrong := sorted(features - _HARMLESS):
        raise InvalidRequestError(
            f"archive {path} is a Delta table with {', '.join(wrong)}: its files alone don't say "
            "any more which rows and columns count; read it as format('delta')"
        )


def _of_action(action: dict[str, Any], record: ArchiveRecord) -> ArchivedFile:
    def bounds(name: str) -> tuple[Any, Any] | None:
        column = record.column(name)
        ends = action.get(f"min.{column}"), action.get(f"max.{column}")
        return None if None in ends else ends

    return ArchivedFile(
        path=unquote(action["path"]),
        topic=action[f"partition.{record.column('topic')}"],
        day=str(action[f"partition.{record.column('day')}"]),
        bytes=action["size_bytes"],
        rows=action["num_records"] or 0,
        partitions=bounds("partition"),
        offsets=bounds("offset"),
        times=bounds("timestamp"),
    )


def _parquet_files(
    place: ArchivePlace, record: ArchiveRecord, names: Sequence[str]
) -> Iterator[ArchivedFile]:
    for name in names:
        yield _of_footer(place, name, record.prefix, record.partitioned_by[0])


@lru_cache(maxsize=65_536)  # a file's name is never used again
def _of_footer(place: ArchivePlace, name: str, prefix: str, folder: str) -> ArchivedFile:
    with opened(place, name) as file:
        footer = file.metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    topic = next(part for part in name.split("/") if part.startswith(f"{folder}="))
    partitions, offsets, times = _held(footer, groups, prefix)
    return ArchivedFile(
        path=name,
        topic=unquote(topic.partition("=")[2]),
        day=name.split("/")[-2],
        bytes=footer.serialized_size + sum(group.total_byte_size for group in groups),
        rows=footer.num_rows,
        partitions=partitions,
        offsets=offsets,
        times=times,
    )


def group_of(file: ArchivedFile, footer: FileMetaData, number: int, prefix: str) -> ArchivedFile:
    """Return a row group as if it were a file, with at least its share of the file's bytes."""
    group = footer.row_group(number)
    partitions, offsets, times = _held(footer, [group], prefix)
    share = file.bytes * group.num_rows // max(file.rows, 1)
    return replace(
        file,
        bytes=max(group.total_byte_size, share),
        rows=group.num_rows,
        partitions=partitions,
        offsets=offsets,
        times=times,
    )


def _held(
    footer: FileMetaData, groups: Sequence[RowGroupMetaData], prefix: str
) -> list[tuple[Any, Any] | None]:
    """Return the bounds of partitions, offsets and times in some row groups."""
    columns = (f"{prefix}{name}" for name in ("partition", "offset", "timestamp"))
    return [_bounds(footer, groups, column) for column in columns]


@lru_cache(maxsize=4_096)
def record_weight(place: ArchivePlace, name: str) -> int:
    """Return the bytes that a record of a file takes in memory, judged by its first ones.

    0 for a file without records. Its size says little: a column that is alike everywhere takes
    nearly nothing in it.
    """
    with opened(place, name) as file:
        batches = file.iter_batches(_sample_rows(file.metadata))
        first = next((batch for batch in batches if batch.num_rows), None)
        return 0 if first is None else -(-first.nbytes // first.num_rows)


def _sample_rows(footer: FileMetaData) -> int:
    packed = sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups))
    rows: int = _SAMPLE_BYTES * footer.num_rows // max(packed, 1)
    return min(max(rows, 1), _SAMPLE_ROWS)


def _bounds(
    footer: FileMetaData, groups: Sequence[RowGroupMetaData], column: str
) -> tuple[Any, Any] | None:
    index = footer.schema.names.index(column)
    known = [group.column(index).statistics for group in groups]
    if not known or not all(each is not None and each.has_min_max for each in known):
        return None
    return min(each.min for each in known), max(each.max for each in known)
