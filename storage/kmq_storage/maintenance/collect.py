"""Collection: deleting files that nothing refers to any more.

- **Referenced files stay.** A file is deleted only when no retained checkpoint, no commit after
  the oldest of them, and no clone refers to it. A checkpoint is retained if it was the newest at
  some time within the grace time, or at a pin. So a reader that found a file through it keeps it.
- **Files that no commit ever named** are deleted when they are old and a condemn entry in the log
  rules out that a later commit names them. After this entry, all references are read again.
- **Order of deletion**: files, then the log, then checkpoints. So a file is deleted before what
  leads to it, and a reader that finds a page missing knows that the page's files are gone, too.
- **Order of reading**: checkpoints, then pins, then the records of clones, so that no process that
  pins or clones meanwhile is missed.

`_facts` reads, `plan_collect` in `collect_rule` decides, and `_carry_out` deletes.
docs/design/collection.md lists the races that this rules out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import groupby

from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError, OffsetOutOfRangeError
from kmq_storage.format.entries import named_file
from kmq_storage.format.layout_entries import CondemnEntry
from kmq_storage.format.manifest import PageRef
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.checkpoints.checkpoint import has_pages, listed_pages, read_refs
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable, translated
from kmq_storage.log.moving import missing_file
from kmq_storage.maintenance.clones import kept_for_clones
from kmq_storage.maintenance.collect_rule import (
    CollectFacts,
    CollectPlan,
    Root,
    RootPlan,
    folder_of,
    plan_collect,
    plan_roots,
)
from kmq_storage.maintenance.left_slips import left_slips
from kmq_storage.maintenance.pins import pinned_lsn
from kmq_storage.maintenance.references import References, references_of
from kmq_storage.maintenance.reports import CollectReport
from kmq_storage.objects.files import Files, FoundFile, held_if_free

#: Folders where collection itself deletes only leftovers of processes that died while writing.
_NAMED_OTHERWISE = (paths.CHECKPOINT_FOLDER, paths.PIN_FOLDER)


def collect(log: CommitLog, *, grace: float = limits.COLLECT_GRACE) -> CollectReport:
    """Delete what nothing refers to; `grace` in seconds by the store's clock.

    When the process is killed, the next collection goes on, since roots are deleted last. On a
    disk, nothing happens while another process collects.
    """
    return try_collect(log, grace=grace) or CollectReport()


def try_collect(log: CommitLog, *, grace: float) -> CollectReport | None:
    """Collect; None when another process collects, or was faster."""
    check_writable(log.files)
    files = log.files
    deletion = _Deletion(files)
    with translated(files.url), _alone(log) as alone:
        now = files.now()
        plan = _try_plan(log, deletion, now, grace) if alone else None
        if plan and plan.condemn:
            log.commit([Unit((CondemnEntry(plan.condemn),))], durable=True)
            plan = _try_plan(log, deletion, now, grace)
        if plan is None:
            return None
        _carry_out(log, plan, deletion)
        deletion.remove_all(left_slips(log, now - _us(limits.ORPHAN_AGE)))
    return deletion.report()


def _alone(log: CommitLog) -> AbstractContextManager[bool]:
    """Keep other collectors away for a block; the value is False when one is at work.

    Two at once might each keep only what their own newest root names. In a bucket, no lock can rule
    out that a stalled collector goes on; there the grace time protects from this.
    """
    if log.is_remote:
        return nullcontext(True)
    return held_if_free(log.files.open_lock(paths.COLLECT_LOCK))


def _try_plan(log: CommitLog, deletion: _Deletion, now: int, grace: float) -> CollectPlan | None:
    """Plan a collection; None when another collector is faster.

    A process that pins after the roots were listed finds only files that these roots or later
    commits name. A clone that has removed its pin has written its record.
    """
    orphans_before = now - _us(limits.ORPHAN_AGE)
    try:
        roots = list(roots_of(log.files))
        pinned = pinned_lsn(log.files, now, deletion.remove)
        cloned = list(kept_for_clones(log.files, orphans_before, deletion.remove))
        pages = listed_pages(log.files)
        useless = [root for root in roots if _is_useless(log.files, root, pages)]
        whole = [root for root in roots if root not in useless]
        plan = plan_roots(whole, since=now - _us(grace), pinned=pinned)
        if not plan.retained:
            return CollectPlan()
        plan = replace(plan, dropped=(*plan.dropped, *useless))
        return plan_collect(_facts(log, plan, cloned, orphans_before=orphans_before))
    except (FileNotFoundError, OffsetOutOfRangeError):
        return None
    except CorruptionError as error:
        if missing_file(error) is None:
            raise
        return None


def _facts(
    log: CommitLog, roots: RootPlan, cloned: Iterable[Iterable[bytes]], *, orphans_before: int
) -> CollectFacts:
    """Read all files and references; `cloned` are the files that clones need.

    CorruptionError when a retained checkpoint can't be read, as its references are then unknown.
    FileNotFoundError or OffsetOutOfRangeError when another collector is faster.
    """
    files = log.files
    state, _ = log.snapshot()
    kept, named = references_of(files, state), References(files)
    for file_ids in cloned:
        kept.add_ids(file_ids)
    for root in roots.retained:
        kept.add_pages(_pages_of(files, root))
    for root in roots.dropped:
        with suppress(CorruptionError):  # files of a damaged root are deleted once they are old
            refs = _pages_of(files, root)
            named.add_pages((ref for ref in refs if ref.page_id not in kept.pages), whole=False)
    for commit in log.commits(None):
        if file_ids := list(filter(None, map(named_file, commit.entries))):  # few name any
            (named if commit.lsn <= roots.floor else kept).add_ids(file_ids)
    return CollectFacts(
        files=tuple(_collectable(files, is_remote=log.is_remote)),
        kept=kept,
        named=named,
        roots=roots,
        condemned=state.condemned,
        lsn=state.lsn,
        orphans_before=orphans_before,
    )


def _collectable(files: Files, *, is_remote: bool) -> list[FoundFile]:
    """The files that are collected once nothing refers to them, and leftovers."""
    found = [file for folder in paths.ID_FOLDERS for file in files.walk(folder)]
    found = [file for file in found if paths.is_own(file.path)]
    # In a bucket, the log's folder has all commits and no leftovers: listing it would be of no use.
    others = _NAMED_OTHERWISE if is_remote else (paths.LOG_FOLDER, *_NAMED_OTHERWISE)
    found += [file for folder in others for file in files.walk(folder) if _is_leftover(file)]
    return found if is_remote else found + _left_on_top(files)


def _left_on_top(files: Files) -> list[FoundFile]:
    """Leftovers beside `kmq.json`; all files are walked only if there are any."""
    left = set(filter(paths.is_unfinished, files.list("")))
    return [file for file in files.walk("") if file.path in left] if left else []


def _carry_out(log: CommitLog, plan: CollectPlan, deletion: _Deletion) -> None:
    for _, files in groupby(plan.files, folder_of):  # one folder after the other
        deletion.remove_all(list(files))
    if plan.first_lsn is not None:
        for _ in log.drop_before(plan.first_lsn):
            deletion.count(0)
    deletion.remove_all([root.file for root in plan.roots])


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def roots_of(files: Files) -> Iterator[Root]:
    """The root files of all checkpoints."""
    for file in files.walk(paths.CHECKPOINT_FOLDER):
        parsed = paths.try_checkpoint(file.path.removeprefix(f"{paths.CHECKPOINT_FOLDER}/"))
        if parsed is not None:
            yield Root(file, *parsed)


def _pages_of(files: Files, root: Root) -> list[PageRef]:
    return read_refs(files, root.lsn, root.digest)


def _is_useless(files: Files, root: Root, pages: set[str]) -> bool:
    """Whether a root misses pages, which were collected before it was published."""
    try:
        return not has_pages(files, _pages_of(files, root), pages)
    except CorruptionError:
        return False  # unknown, as it is damaged


def _is_leftover(file: FoundFile) -> bool:
    return paths.is_leftover(file.path)


class _Deletion:
    """Deletes files, and counts them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._count = self._bytes = 0

    def remove(self, path: str, length: int = 0) -> None:
        """Delete a file, and count it and its length."""
        self._files.remove(path)
        self.count(length)

    def remove_all(self, files: Sequence[FoundFile]) -> None:
        """Delete files, in any order."""
        self._files.remove(*(file.path for file in files))
        for file in files:
            self.count(file.length)

    def count(self, length: int) -> None:
        """Count a deleted file of this length."""
        self._count, self._bytes = self._count + 1, self._bytes + length

    def report(self) -> CollectReport:
        """The report of what was deleted."""
        return CollectReport(self._count, self._bytes)
