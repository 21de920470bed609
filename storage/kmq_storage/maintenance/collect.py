"""Collection: deleting files that nothing refers to any more.

The rule (docs/design/collection.md): a file goes only when no retained checkpoint and no commit
after the oldest of them refers to it. Retained are all checkpoints that were the newest at some
time within the grace time, or at a pin; whoever found a file through one of them still has it.
Files that no commit ever named go when they are older than any writer that is still about to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from kmq_storage import limits, paths
from kmq_storage.errors import OffsetOutOfRangeError
from kmq_storage.format.entries import Entry, RecordsEntry
from kmq_storage.format.layout_entries import SegmentEntry
from kmq_storage.log.checkpoint import Checkpoint, read_checkpoint
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.pins import pinned_lsn
from kmq_storage.maintenance.references import References, references_of
from kmq_storage.maintenance.reports import CollectReport
from kmq_storage.objects.files import Files, FoundFile

_FOLDERS = (paths.STAGED_FOLDER, paths.SEGMENT_FOLDER, paths.PAGE_FOLDER)


@dataclass(frozen=True, slots=True)
class Root:
    """A checkpoint's file."""

    file: FoundFile
    lsn: int
    digest: bytes


def plan_roots(
    roots: Sequence[Root], *, since: int, pinned: int | None
) -> tuple[list[Root], list[Root]]:
    """The roots to retain, and those to drop; `since` is when the grace time began (UTC us).

    A root was the newest until the next one was written: the first one older than the grace time
    may have been found within it. A pin keeps the root from which its LSN was reached.
    """
    ordered = sorted(roots, key=lambda root: root.lsn, reverse=True)
    retained = 1
    for number, newer in enumerate(ordered[:-1], 1):
        reached = pinned is not None and newer.lsn > pinned
        if newer.file.modified >= since or reached:
            retained = number + 1
    return ordered[:retained], ordered[retained:]


def collect(
    log: CommitLog,
    *,
    grace: float = limits.COLLECT_GRACE,
    orphan_age: float = limits.ORPHAN_AGE,
) -> CollectReport:
    """Delete what nothing refers to; `grace` and `orphan_age` in seconds by the store's clock.

    Killed anywhere, it goes on the next time: roots go last.
    """
    disk, now = log.disk, log.disk.now()
    deletion = _Deletion(disk)
    pinned = pinned_lsn(disk, now, deletion.remove)
    retained, dropped = plan_roots(list(_roots(disk)), since=now - _us(grace), pinned=pinned)
    if not retained:
        return CollectReport()
    state, _ = log.snapshot()
    kept = references_of(disk, state)
    for root in retained:
        kept.add_pages(_read(disk, root).refs)
    named = References(disk)
    for root in dropped:
        named.add_pages(ref for ref in _read(disk, root).refs if ref.page_id not in kept.pages)
    named.add_ids(_named_before(log, retained[-1].lsn))
    for folder in _FOLDERS:
        for file in disk.walk(folder):
            if _goes(file, kept, named, orphans_before=now - _us(orphan_age)):
                deletion.remove(file.path, file.length)
    needed = min(kept.lowest_log_file(), retained[-1].lsn + 1)
    for name in log.drop_before(needed):
        deletion.count(name, 0)
    for root in dropped:
        deletion.remove(root.file.path, root.file.length)
    return deletion.report()


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _roots(disk: Files) -> Iterator[Root]:
    for file in disk.walk(paths.CHECKPOINT_FOLDER):
        parsed = paths.try_checkpoint(file.path.rpartition("/")[2])
        if parsed is not None:
            yield Root(file, *parsed)


def _read(disk: Files, root: Root) -> Checkpoint:
    return read_checkpoint(disk, root.lsn, root.digest)


def _named_before(log: CommitLog, lsn: int) -> Iterator[bytes]:
    """The files that commits still in the log, up to an LSN, named."""
    try:
        for commit in takewhile(lambda commit: commit.lsn <= lsn, log.commits(None)):
            yield from filter(None, map(_file_of, commit.entries))
    except OffsetOutOfRangeError:
        return  # another collector is faster


def _file_of(entry: Entry) -> bytes | None:
    if isinstance(entry, RecordsEntry):
        return entry.staged
    return entry.file_id if isinstance(entry, SegmentEntry) else None


def _goes(file: FoundFile, kept: References, named: References, *, orphans_before: int) -> bool:
    file_id = paths.try_file_id(file.path)
    if file_id is None:  # a leftover of a process that died while it wrote
        return file.modified < orphans_before
    if kept.has(file_id):
        return False
    return named.has(file_id) or file.modified < orphans_before


class _Deletion:
    """Deletes files, and counts them."""

    def __init__(self, disk: Files) -> None:
        self._disk = disk
        self._files = self._bytes = 0

    def remove(self, path: str, length: int = 0) -> None:
        """Delete a file."""
        self._disk.remove(path)
        self.count(path, length)

    def count(self, path: str, length: int) -> None:
        """A file was deleted."""
        self._files, self._bytes = self._files + 1, self._bytes + length

    def report(self) -> CollectReport:
        """What was deleted."""
        return CollectReport(self._files, self._bytes)
