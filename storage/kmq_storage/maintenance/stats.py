"""Statistics of a store."""

from __future__ import annotations

from kmq_storage import limits, paths
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.maintenance.checkpointing import log_damage, what_to_do
from kmq_storage.maintenance.clones import clone_records
from kmq_storage.maintenance.references import References, live_references
from kmq_storage.maintenance.reports import StoreStats
from kmq_storage.objects.files import Files, FoundFile

_KINDS = {
    "log": paths.LOG_FOLDER,
    "staged": paths.STAGED_FOLDER,
    "segments": paths.SEGMENT_FOLDER,
    "checkpoints": paths.CHECKPOINT_FOLDER,
    "pages": paths.PAGE_FOLDER,
}


def store_stats(log: CommitLog) -> StoreStats:
    """The statistics of a store, from the names and sizes of its files; no record is read."""
    with translated(log.files.url):
        return _stats(log)


def _stats(log: CommitLog) -> StoreStats:
    state, _ = log.snapshot()
    live = live_references(log.files, state)
    found, shared = _found(log.files, live)
    garbage = [
        file
        for kind in ("staged", "segments", "pages")
        for file in found[kind]
        if not live.has_file(file.path) and paths.is_own(file.path)
    ]
    topics, damage = state.topics.values(), log_damage(state)
    sizes = {kind: _bytes(files) for kind, files in found.items()}
    written = state.appended + state.rewritten
    return StoreStats(
        bytes={**sizes, "log": _on_disk(found["log"])},
        files={kind: len(files) for kind, files in found.items()},
        shared_files=len(shared),
        shared_bytes=_bytes(shared),
        rows=sum(topic.held for topic in topics),
        payload=sum(part.size for topic in topics for part in topic.parts),
        small_segments=sum(
            file.length < limits.SEGMENT_BYTES // 16 and live.has_file(file.path)
            for file in found["segments"]
        ),
        garbage_files=len(garbage),
        garbage_bytes=_bytes(garbage),
        write_amplification=written / state.appended if state.appended else 1.0,
        damage="" if damage is None else what_to_do(damage),
    )


def _found(files: Files, live: References) -> tuple[dict[str, list[FoundFile]], list[FoundFile]]:
    """The files of a store by kind, and those of them that it shares with other stores."""
    found = {kind: list(files.walk(folder)) for kind, folder in _KINDS.items()}
    shared = _shared_with_clones(files, found["staged"] + found["segments"])
    for kind in ("staged", "segments"):
        used = [file for file in files.walk_shared(_KINDS[kind]) if live.has_file(file.path)]
        found[kind] += used
        shared += used
    return found, shared


def _shared_with_clones(files: Files, found: list[FoundFile]) -> list[FoundFile]:
    """Files that have a hard link in another store, and files that a clone reads here."""
    kept = References(files)
    for _, record in clone_records(files):
        kept.add_ids(record.file_ids)
    return [file for file in found if file.names > 1 or kept.has_file(file.path)]


def _on_disk(files: list[FoundFile]) -> int:
    """The bytes that log files take: they have a fixed length, and are filled by and by."""
    return sum(file.length if file.on_disk is None else file.on_disk for file in files)


def _bytes(files: list[FoundFile]) -> int:
    return sum(file.length for file in files)
