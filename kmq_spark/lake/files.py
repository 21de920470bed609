"""The files of an archive and what they can hold: from Delta's log, or from Parquet's footers.

Statistics decide whether a read has to open a file. They may be missing or wide, never wrong:
rows are chosen by their own columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from kmq_spark.lake.batches import no_files, whole_batches
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA, ArchiveRecord
from kmq_storage.errors import InvalidRequestError

if TYPE_CHECKING:
    import pyarrow.parquet
    from deltalake import DeltaTable

#: What a Delta table may ask of its readers that leaves its files to be read as they are.
_HARMLESS = {
    *("timestampNtz", "typeWidening", "typeWidening-preview"),
    *("v2Checkpoint", "vacuumProtocolCheck"),
}

#: So many records tell what the others weigh.
_SAMPLE_ROWS = 1_024

#: Delta cuts the times in its statistics to milliseconds, downwards.
_TRUNCATED = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A Parquet file with records of one topic, and between which values they lie."""

    #: Below the archive.
    path: str
    topic: str
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
        return self.times is None or self.times[1] >= when - _TRUNCATED


def archived_files(place: ArchivePlace, record: ArchiveRecord) -> list[ArchivedFile]:
    """All files of the archive as it is now, by offset.

    Who asks knows of records that were archived: IllegalStateError when there is nothing.
    """
    found = _delta_files(place, record) if record.format == DELTA else _parquet_files(place, record)
    return sorted(found, key=lambda each: (each.offsets or (0, 0), each.path))


def check_readable(place: ArchivePlace) -> None:
    """InvalidRequestError for a Delta table that can't be read by its files; none is one, too."""
    table = _delta_table(place)
    if table is not None:
        _refuse_unreadable(place.url, set(table.protocol().reader_features or ()))


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
    _refuse_unreadable(place.url, set(table.protocol().reader_features or ()))
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        yield _of_action(action, record)


def _refuse_unreadable(path: str, features: set[str]) -> None:
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
        bytes=action["size_bytes"],
        rows=action["num_records"] or 0,
        partitions=bounds("partition"),
        offsets=bounds("offset"),
        times=bounds("timestamp"),
    )


def _parquet_files(place: ArchivePlace, record: ArchiveRecord) -> Iterator[ArchivedFile]:
    for name in whole_batches(place):
        yield _of_footer(place, name, record.prefix)


@lru_cache(maxsize=65_536)  # a file's name is never used again
def _of_footer(place: ArchivePlace, name: str, prefix: str) -> ArchivedFile:
    import pyarrow.parquet

    system, root = place.file_system()
    with system.open(f"{root}/{name}", "rb") as file:
        footer = pyarrow.parquet.ParquetFile(file).metadata
    topic = next(part for part in name.split("/") if part.startswith(f"{prefix}topic="))
    return ArchivedFile(
        path=name,
        topic=unquote(topic.partition("=")[2]),
        bytes=footer.serialized_size
        + sum(footer.row_group(n).total_byte_size for n in range(footer.num_row_groups)),
        rows=footer.num_rows,
        partitions=_bounds(footer, f"{prefix}partition"),
        offsets=_bounds(footer, f"{prefix}offset"),
        times=_bounds(footer, f"{prefix}timestamp"),
    )


@lru_cache(maxsize=4_096)
def record_weight(place: ArchivePlace, name: str) -> int:
    """The bytes that a record of a file takes in memory, as its first ones do; 0 for no records.

    The file's size says little: what is alike all over it takes nearly nothing there.
    """
    import pyarrow.parquet

    system, root = place.file_system()
    with system.open(f"{root}/{name}", "rb") as file:
        batches = pyarrow.parquet.ParquetFile(file, buffer_size=1 << 16).iter_batches(_SAMPLE_ROWS)
        first = next((batch for batch in batches if batch.num_rows), None)
        return 0 if first is None else -(-first.nbytes // first.num_rows)


def _bounds(footer: pyarrow.parquet.FileMetaData, column: str) -> tuple[Any, Any] | None:
    index = footer.schema.names.index(column)
    groups = [footer.row_group(n).column(index).statistics for n in range(footer.num_row_groups)]
    if not groups or not all(group is not None and group.has_min_max for group in groups):
        return None
    return min(group.min for group in groups), max(group.max for group in groups)
