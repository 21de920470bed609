"""What a store is made of, in numbers."""

from __future__ import annotations

from kmq_storage import limits, paths
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.references import references_of
from kmq_storage.maintenance.reports import StoreStats
from kmq_storage.objects.disk import FoundFile

_KINDS = {
    "log": paths.LOG_FOLDER,
    "staged": paths.STAGED_FOLDER,
    "segments": paths.SEGMENT_FOLDER,
    "checkpoints": paths.CHECKPOINT_FOLDER,
    "pages": paths.PAGE_FOLDER,
}


def store_stats(log: CommitLog) -> StoreStats:
    """Look at every file's name and size; no record is read."""
    state, _ = log.snapshot()
    found = {kind: list(log.disk.walk(folder)) for kind, folder in _KINDS.items()}
    live = references_of(log.disk, state)
    garbage = [
        file
        for kind in ("staged", "segments", "pages")
        for file in found[kind]
        if (file_id := paths.try_file_id(file.path)) is None or not live.has(file_id)
    ]
    topics = state.topics.values()
    return StoreStats(
        {kind: _bytes(files) for kind, files in found.items()},
        {kind: len(files) for kind, files in found.items()},
        sum(topic.held for topic in topics),
        sum(part.size for topic in topics for part in topic.parts),
        sum(file.length < limits.SEGMENT_BYTES // 16 for file in found["segments"]),
        len(garbage),
        _bytes(garbage),
        (state.appended + state.rewritten) / state.appended if state.appended else 1.0,
    )


def _bytes(files: list[FoundFile]) -> int:
    return sum(file.length for file in files)
