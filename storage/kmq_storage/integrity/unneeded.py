"""Segments that nothing refers to any more, and that wait to be collected: no reader meets them.

Commits that named them prove all of them; where these are gone they prove their own batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NoReturn

from kmq_storage import paths
from kmq_storage.errors import CorruptionError
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.integrity.found_segments import try_segment
from kmq_storage.integrity.log_remains import commits_left
from kmq_storage.integrity.report import Note
from kmq_storage.integrity.segment_files import check_segment
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.manifest_rows import row_of_segment
from kmq_storage.model import Segment


def check_unneeded(log: CommitLog, files: Collection[str]) -> Iterator[Note]:
    """Which of these are damaged segments."""
    segments = {file for file in files if file.startswith(f"{paths.SEGMENT_FOLDER}/")}
    named = _named(log) if segments else {}
    for found in log.files.walk(paths.SEGMENT_FOLDER) if segments else ():
        if found.path not in segments:
            continue
        entry = named.get(paths.try_file_id(found.path))
        if entry is not None:
            reason = _wrong(log, entry)
        else:
            segment = try_segment(log.files, found)
            reason = "" if segment is not None and segment.whole else "it doesn't prove itself"
        if reason:
            yield Note(found.path, f"is damaged ({reason}) and waits to be collected, no harm done")


def _named(log: CommitLog) -> dict[bytes | None, SegmentEntry]:
    """The segments of known topics that commits in the log named."""
    known = log.state.topic_by_id
    return {
        entry.file_id: entry
        for commit in commits_left(log.files, log.identity)
        for entry in commit.entries
        if isinstance(entry, SegmentEntry) and known(entry.topic_id) is not None
    }


def _wrong(log: CommitLog, entry: SegmentEntry) -> str:
    """How a segment is not what the commit says that named it; nothing when it is, or is gone."""
    topic = log.state.topic_by_id(entry.topic_id)
    assert topic is not None, "only entries of known topics are kept"
    segment = row_of_segment(entry).place((entry.topic_id, entry.partition))
    assert isinstance(segment, Segment), "a row of a segment"
    try:
        contents = log.files.map(segment.location.file)
    except FileNotFoundError:
        return ""
    place = (contents, segment, topic, entry.partition)
    return next((each.reason for each in check_segment(*place, deep=True, runs=_nowhere)), "")


def _nowhere() -> NoReturn:
    raise CorruptionError("which runs stood before it nobody knows any more")
