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
        entry.base_offset,
        entry.end_offset,
        entry.rows,
        SEGMENT,
        entry.file_id,
        entry.footer_position,
        entry.length - entry.footer_position,
        entry.footer_checksum,
        entry.columns,
        entry.min_timestamp,
        entry.max_timestamp,
        entry.time,
        entry.size,
    )
