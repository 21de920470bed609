"""Checks segments that nothing refers to any more and that wait to be collected.

No reader reads them. If the commit that named a segment is still in the log, it proves the whole
file; otherwise the segment's own footer proves its batches. A file that no commit ever named is not
checked: its writer is still at work, or was killed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NoReturn

from kmq_storage import paths
from kmq_storage.errors import CorruptionError, FormatVersionError
from kmq_storage.format.file_ids import begun_at
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.integrity.files.segments import check_segment
from kmq_storage.integrity.remains.commits import commits_left
from kmq_storage.integrity.remains.segments import try_segment
from kmq_storage.integrity.report import Note
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.files.journal import CollectedError
from kmq_storage.log.index.manifest_rows import row_of_segment
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import Segment
from kmq_storage.objects.files import Files, FoundFile


def check_unneeded(log: CommitLog, files: Collection[str]) -> Iterator[Note]:
    """The damaged segments among these files."""
    segments = {file for file in files if file.startswith(f"{paths.SEGMENT_FOLDER}/")}
    first, named = _named(log) if segments else (0, {})
    for found in log.files.walk(paths.SEGMENT_FOLDER) if segments else ():
        file_id = paths.try_file_id(found.path)
        if found.path not in segments or file_id is None:
            continue
        known, reason = named.get(file_id), ""
        if known is not None:
            reason = _wrong(log.files, *known)
        elif begun_at(file_id) < first:
            reason = _unproven(log.files, found)
        if reason:
            yield Note(found.path, f"is damaged ({reason}) and waits to be collected, no harm done")


def _named(log: CommitLog) -> tuple[int, dict[bytes, tuple[Topic, SegmentEntry]]]:
    """The first LSN in the log, and the segments of known topics that its commits named."""
    known, first = log.state.topic_by_id, 0
    named: dict[bytes, tuple[Topic, SegmentEntry]] = {}
    with suppress(CollectedError):  # commits that are collected now named files that go too
        for commit in commits_left(log.files, log.identity):
            first = first or commit.lsn
            for entry in commit.entries:
                if isinstance(entry, SegmentEntry) and (topic := known(entry.topic_id)):
                    named[entry.file_id] = topic, entry
    return first or log.state.lsn + 1, named


def _unproven(files: Files, found: FoundFile) -> str:
    """Why a segment's own footer doesn't prove it; empty when it does, or the file is gone."""
    with suppress(FormatVersionError):  # the version itself may be damaged
        segment = try_segment(files, found)
        if (segment is not None and segment.whole) or not files.exists(found.path):
            return ""
    return "it doesn't prove itself"


def _wrong(files: Files, topic: Topic, entry: SegmentEntry) -> str:
    """How a segment differs from the commit that named it; empty if it doesn't, or is gone."""
    segment = row_of_segment(entry).place((entry.topic_id, entry.partition))
    assert isinstance(segment, Segment), "a row of a segment"
    try:
        contents = files.map(segment.location.file)
    except FileNotFoundError:
        return ""
    place = (contents, segment, topic, entry.partition)
    return next((each.reason for each in check_segment(*place, deep=True, runs=_nowhere)), "")


def _nowhere() -> NoReturn:
    raise CorruptionError("it is unknown which runs were before it")
