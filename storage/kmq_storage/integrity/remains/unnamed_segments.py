"""Segments that lost commits may have named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from kmq_storage import paths
from kmq_storage.format.file_ids import begun_at
from kmq_storage.format.manifest import Key, Row
from kmq_storage.integrity.remains.segment_holes import lost_inside
from kmq_storage.integrity.remains.segments import FoundSegment, try_segment
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_of_log
from kmq_storage.objects.files import Files
from kmq_storage.objects.mapping import brought_in


def unnamed_segments(files: Files, state: StoreState) -> dict[Key, list[FoundSegment]]:
    """Segments of known topics that were begun after the commits before the first lost one.

    Whole segments come first, and of these the newest, which may leave out records of those that it
    was made of.
    """
    found: dict[Key, list[FoundSegment]] = {}
    if not state.lost_commits:
        return found
    known = min(lost.first_lsn for lost in state.lost_commits) - 1
    for segment in _begun_since(files, known):
        if state.topic_by_id(segment.topic_id) is not None:
            found.setdefault((segment.topic_id, segment.partition), []).append(segment)
    for segments in found.values():
        segments.sort(key=lambda each: (each.whole, begun_at(each.row.file)), reverse=True)
    return found


def _begun_since(files: Files, lsn: int) -> Iterator[FoundSegment]:
    for file in files.walk(paths.SEGMENT_FOLDER):
        file_id = paths.try_file_id(file.path)
        if file_id is not None and begun_at(file_id) >= lsn:
            segment = try_segment(files, file)
            if segment is not None:
                yield segment


def rows_to_put_back(
    files: Files, state: StoreState, found: dict[Key, list[FoundSegment]]
) -> dict[Key, list[Row]]:
    """The rows of segments that can be put back, because they tell all about their offsets.

    Three kinds of segments are not put back:

    - those that the log condemned, which may be being collected;
    - those of a queue's own log, since the queue would have dead letters twice;
    - runs that lack a record or that a trim made.
    """
    return {
        key: [
            row
            for segment in segments
            if begun_at(segment.row.file) >= state.condemned
            for row in _telling(files, topic, segment)
        ]
        for key, segments in found.items()
        if (topic := state.topic_by_id(key[0])) is not None and queue_of_log(topic.name) is None
    }


def complete(found: dict[Key, list[FoundSegment]]) -> frozenset[bytes]:
    """The files of segments that prove to have every record of their offsets."""
    return frozenset(
        each.row.file
        for segments in found.values()
        for each in segments
        if each.whole and each.row.dense
    )


def ends_of(found: dict[Key, list[FoundSegment]]) -> dict[Key, int]:
    """The least end of each partition, by these segments."""
    return {key: max(each.row.end_offset for each in found[key]) for key in found}


def _telling(files: Files, topic: Topic, segment: FoundSegment) -> Sequence[Row]:
    """The row of a segment; empty if its schema is unknown, or which records it lacks."""
    row = segment.row_of(topic.layout())
    if row is None:
        return ()
    if row.in_run:
        return (row,) if row.dense and segment.whole and not segment.begun else ()
    return (row,) if row.dense or not _is_cut(files, segment, row) else ()


def _is_cut(files: Files, segment: FoundSegment, row: Row) -> bool:
    """Whether records that a segment lacks may have been cut out by a repair."""
    with suppress(pa.ArrowException, OSError):
        path = row.path((segment.topic_id, segment.partition))
        return bool(lost_inside(brought_in(files.map(path).slice()), row))
    return True
