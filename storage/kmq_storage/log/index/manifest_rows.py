"""From entries of commits to rows of the manifest, which say where records are."""

from __future__ import annotations

from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.format.manifest import LOG, SEGMENT, STAGED, Row, RowValues, log_file_id


def row_of_records(entry: RecordsEntry, time: int, file: int, position: int) -> Row:
    """The row for a batch of the commit whose frame is at a position of a log file."""
    return Row(*values_of_records(entry, time, file, position))


def values_of_records(entry: RecordsEntry, time: int, file: int, position: int) -> RowValues:
    """The field values of this row as a tuple, which takes half as long to make as a row."""
    kind, where = (STAGED, entry.staged) if entry.staged else (LOG, log_file_id(file))
    return (
        entry.base_offset,
        entry.base_offset + entry.rows,
        entry.rows,
        kind,
        where,
        entry.position if entry.staged else position + entry.position,
        entry.length,
        entry.checksum,
        entry.columns,
        entry.min_timestamp,
        entry.max_timestamp,
        time,
        entry.size,
    )


def row_of_segment(entry: SegmentEntry) -> Row:
    """The row for a segment."""
    return Row(
        base_offset=entry.base_offset,
        end_offset=entry.end_offset,
        rows=entry.rows,
        kind=SEGMENT,
        file=entry.file_id,
        position=entry.footer_position,
        length=entry.length - entry.footer_position,
        checksum=entry.footer_checksum,
        columns=entry.columns,
        min_timestamp=entry.min_timestamp,
        max_timestamp=entry.max_timestamp,
        time=entry.time,
        size=entry.size,
    )
