"""Collection: deleting files that nothing refers to any more.

- A file goes only when no retained checkpoint, no commit after the oldest of them and no clone
  refers to it. Retained are all checkpoints that were the newest at some time within the grace
  time, or at a pin: whoever found a file through one of them still has it.
- Files that no commit ever named go when they are old and the log says, by a condemn entry, that
  none will name them; then they are looked up again.
- What others find a file through goes after it: files, then the log, then checkpoints. Who finds a
  page gone knows that what only it named is gone.
- Roots are listed before pins, and pins before the records of clones, so that nobody who pins or
  clones meanwhile is missed.

`collect` looks (`_facts`), `plan_collect` decides, `_carry_out` deletes. The races that this rules
out stand in docs/design/collection.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby

from kmq_storage import limits, paths
from kmq_storage.errors import CorruptionError, OffsetOutOfRangeError
from kmq_storage.format.entries import named_file
from kmq_storage.format.file_ids import begun_at
from kmq_storage.format.layout_entries import CondemnEntry
from kmq_storage.format.manifest import PageRef
from kmq_storage.log.binding import Unit
from kmq_storage.log.checkpoint import has_pages, read_refs
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import check_writable, translated
from kmq_storage.log.moving import missing_file
from kmq_storage.maintenance.clones import kept_for_clones
from kmq_storage.maintenance.pins import pinned_lsn
from kmq_storage.maintenance.references import References, references_of
from kmq_storage.maintenance.reports import CollectReport
from kmq_storage.objects.files import Files, FoundFile

#: Here only what a process left that died while it wrote.
_NAMED_OTHERWISE = (paths.CHECKPOINT_FOLDER, paths.PIN_FOLDER)


@dataclass(frozen=True, slots=True)
class Root:
    """A checkpoint's file."""

    file: FoundFile
    lsn: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class RootPlan:
    """Which checkpoints stay."""

    #: The newest first.
    retained: tuple[Root, ...]
    dropped: tuple[Root, ...]
    #: What was replaced up to this LSN, nobody found within the grace time or under a pin.
    floor: int


@dataclass(frozen=True, slots=True)
class CollectPlan:
    """What goes, in this order."""

    files: tuple[FoundFile, ...] = ()
    #: The first LSN that is needed of the log; None for all of it.
    first_lsn: int | None = None
    roots: tuple[Root, ...] = ()
    #: More would go if the log condemned what was begun before this LSN; 0 when nothing would.
    condemn: int = 0


def plan_roots(roots: Sequence[Root], *, since: int, pinned: int | None) -> RootPlan:
    """Which checkpoints to retain; `since` is when the grace time began (UTC us).

    A root was the newest until the next one was written: the first one older than the grace time
    may have been found within it, or another one of its LSN, which says the same through pages of
    its own. A pin keeps the root from which its LSN was reached.
    """
    ordered = sorted(roots, key=lambda root: (root.lsn, root.digest), reverse=True)

    def is_settled(root: Root) -> bool:
        return root.file.modified <= since and (pinned is None or root.lsn <= pinned)

    unsettled = [number for number, root in enumerate(ordered, 1) if not is_settled(root)]
    retained = min(max(unsettled, default=0) + 1, len(ordered))
    oldest = ordered[retained - 1] if ordered else None
    floor = oldest.lsn if oldest is not None and is_settled(oldest) else 0
    while retained < len(ordered) and oldest is not None and ordered[retained].lsn == oldest.lsn:
        retained += 1
    return RootPlan(tuple(ordered[:retained]), tuple(ordered[retained:]), floor)


@dataclass(frozen=True, slots=True)
class CollectFacts:
    """What a collection goes by: the files that there are, and who refers to which of them."""

    files: tuple[FoundFile, ...]
    #: What a retained checkpoint, a commit after the oldest of them or a clone refers to.
    kept: References
    #: What only checkpoints that are dropped and commits before all that are retained refer to.
    named: References
    roots: RootPlan
    #: Files that were begun before this LSN no commit can name any more.
    condemned: int
    #: The last commit.
    lsn: int
    #: Older files that no commit named are given up (UTC us).
    orphans_before: int

    def goes(self, file: FoundFile) -> bool:
        """Whether nobody needs this file, now or later."""
        if self.kept.has_file(file.path):
            return False
        # A checkpoint that is older than the oldest retained one does no harm without its pages.
        limit = self.roots.retained[-1].lsn if _is_page(file) else self.condemned
        return self.named.has_file(file.path) or (self._is_old(file) and _begun_at(file) < limit)

    def to_condemn(self) -> int:
        """What the log must condemn so that all old files go that no commit named; 0 if it has."""
        waiting = (
            _begun_at(file) + 1
            for file in self.files
            if self._is_old(file)
            and not _is_page(file)
            and self.condemned <= _begun_at(file) <= self.lsn
            and not self.kept.has_file(file.path)
        )
        return max(waiting, default=0)

    def _is_old(self, file: FoundFile) -> bool:
        return file.modified <= self.orphans_before


def plan_collect(facts: CollectFacts) -> CollectPlan:
    """What nothing refers to goes; what no commit named only when it is old and condemned."""
    floor, oldest = facts.roots.floor, facts.roots.retained[-1]
    assert floor <= oldest.lsn <= facts.lsn, "the log goes on behind each retained checkpoint"
    files = tuple(file for file in facts.files if facts.goes(file))
    first_lsn = min(facts.kept.lowest_log_file(), floor + 1) if floor else None
    return CollectPlan(files, first_lsn, facts.roots.dropped, facts.to_condemn())


def _begun_at(file: FoundFile) -> int:
    """The LSN that the writer of a file knew; -1 for what nobody can name."""
    file_id = paths.try_file_id(file.path)
    return -1 if file_id is None else begun_at(file_id)


def _is_page(file: FoundFile) -> bool:
    return _folder(file) == paths.PAGE_FOLDER


def _folder(file: FoundFile) -> str:
    return file.path.partition("/")[0]


def collect(
    log: CommitLog,
    *,
    grace: float = limits.COLLECT_GRACE,
    orphan_age: float = limits.ORPHAN_AGE,
) -> CollectReport:
    """Delete what nothing refers to; `grace` and `orphan_age` in seconds by the store's clock.

    Killed anywhere, it goes on the next time: roots go last. Nothing happens while another one is
    at it on this disk.
    """
    check_writable(log.files)
    files = log.files
    deletion = _Deletion(files)
    with translated(files.url), _alone(log) as alone:
        if not alone:
            return deletion.report()
        now = files.now()
        plan = _try_plan(log, deletion, now, grace=grace, orphan_age=orphan_age)
        if plan.condemn:
            log.commit([Unit((CondemnEntry(plan.condemn),))], durable=True)
            plan = _try_plan(log, deletion, now, grace=grace, orphan_age=orphan_age)
        _carry_out(log, plan, deletion)
        deletion.remove_all(_left_slips(log, now - _us(orphan_age)))
    return deletion.report()


@contextmanager
def _alone(log: CommitLog) -> Iterator[bool]:
    """Whether nobody else collects meanwhile: two might each keep what the other's root names.

    In a bucket nothing can promise that to who stalls; there the grace time stands between them.
    """
    if log.is_remote:
        yield True
        return
    lock = log.files.open_lock(paths.COLLECT_LOCK)
    alone = lock.try_acquire()
    try:
        yield alone
    finally:
        if alone:
            lock.release()


def _try_plan(
    log: CommitLog, deletion: _Deletion, now: int, *, grace: float, orphan_age: float
) -> CollectPlan:
    """What goes; nothing when another collector is faster.

    Whoever pins after the roots were listed finds only what these or later commits name; a clone
    whose pin is given back has its record.
    """
    orphans_before = now - _us(orphan_age)
    try:
        roots = list(_roots(log.files))
        pinned = pinned_lsn(log.files, now, deletion.remove)
        cloned = list(kept_for_clones(log.files, orphans_before, deletion.remove))
        useless = [root for root in roots if _is_useless(log.files, root)]
        whole = [root for root in roots if root not in useless]
        plan = plan_roots(whole, since=now - _us(grace), pinned=pinned)
        if not plan.retained:
            return CollectPlan()
        plan = replace(plan, dropped=(*plan.dropped, *useless))
        return plan_collect(_facts(log, plan, cloned, orphans_before=orphans_before))
    except (FileNotFoundError, OffsetOutOfRangeError):
        return CollectPlan()
    except CorruptionError as error:
        if missing_file(error) is None:
            raise
        return CollectPlan()


def _facts(
    log: CommitLog, roots: RootPlan, cloned: Iterable[Iterable[bytes]], *, orphans_before: int
) -> CollectFacts:
    """Who refers to what, and what there is; what is `cloned` others refer to.

    CorruptionError when a retained checkpoint can't be read: nobody knows what it refers to.
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
        with suppress(CorruptionError):  # what only a damaged one names goes when it is old
            refs = _pages_of(files, root)
            named.add_pages((ref for ref in refs if ref.page_id not in kept.pages), whole=False)
    for commit in log.commits(None):
        file_ids = filter(None, map(named_file, commit.entries))
        (named if commit.lsn <= roots.floor else kept).add_ids(file_ids)
    found = [file for folder in paths.ID_FOLDERS for file in files.walk(folder)]
    # A bucket has whole commits below the log's folder: to list them all would find nothing.
    others = _NAMED_OTHERWISE if log.is_remote else (paths.LOG_FOLDER, *_NAMED_OTHERWISE)
    found += [file for folder in others for file in files.walk(folder) if _is_leftover(file)]
    found += [] if log.is_remote else _left_on_top(files)
    return CollectFacts(
        tuple(found), kept, named, roots, state.condemned, state.lsn, orphans_before
    )


def _left_on_top(files: Files) -> list[FoundFile]:
    """What was left beside `kmq.json`; only where there is any, every file is looked at."""
    left = set(filter(paths.is_unfinished, files.list("")))
    return [file for file in files.walk("") if file.path in left] if left else []


def _left_slips(log: CommitLog, before: int) -> list[FoundFile]:
    """Slips of receivers that died: the others use theirs for a part of that time only."""
    found = [each for each in log.files.walk(paths.SLIP_FOLDER) if each.modified <= before]
    used = {paths.slip_file(slip) for queue in log.refresh().queues for slip in queue.slips}
    return [file for file in found if file.path not in used]


def has_dropped_roots(files: Files, grace: float) -> bool:
    """Whether a checkpoint had its time, and with it perhaps files."""
    since = files.now() - _us(grace)
    return bool(plan_roots(list(_roots(files)), since=since, pinned=None).dropped)


def _carry_out(log: CommitLog, plan: CollectPlan, deletion: _Deletion) -> None:
    for _, files in groupby(plan.files, _folder):  # each is gone before the next begins
        deletion.remove_all(list(files))
    if plan.first_lsn is not None:
        for _ in log.drop_before(plan.first_lsn):
            deletion.count(0)
    deletion.remove_all([root.file for root in plan.roots])


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _roots(files: Files) -> Iterator[Root]:
    for file in files.walk(paths.CHECKPOINT_FOLDER):
        parsed = paths.try_checkpoint(file.path.rpartition("/")[2])
        if parsed is not None:
            yield Root(file, *parsed)


def _pages_of(files: Files, root: Root) -> list[PageRef]:
    return read_refs(files, root.lsn, root.digest)


def _is_useless(files: Files, root: Root) -> bool:
    """Whether pages were collected before the root that keeps them was published."""
    try:
        return not has_pages(files, _pages_of(files, root))
    except CorruptionError:
        return False  # damaged: nobody knows


def _is_leftover(file: FoundFile) -> bool:
    return file.path.endswith(".tmp")


class _Deletion:
    """Deletes files, and counts them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._count = self._bytes = 0

    def remove(self, path: str, length: int = 0) -> None:
        """Delete a file."""
        self._files.remove(path)
        self.count(length)

    def remove_all(self, files: Sequence[FoundFile]) -> None:
        """Delete files, in any order."""
        self._files.remove(*(file.path for file in files))
        for file in files:
            self.count(file.length)

    def count(self, length: int) -> None:
        """A file was deleted."""
        self._count, self._bytes = self._count + 1, self._bytes + length

    def report(self) -> CollectReport:
        """What was deleted."""
        return CollectReport(self._count, self._bytes)
