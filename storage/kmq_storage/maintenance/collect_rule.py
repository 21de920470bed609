"""What collection deletes, decided by facts that `collect` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kmq_storage import paths
from kmq_storage.format.file_ids import begun_at
from kmq_storage.maintenance.references import References
from kmq_storage.objects.files import FoundFile


@dataclass(frozen=True, slots=True)
class Root:
    """The root file of a checkpoint."""

    file: FoundFile
    lsn: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class RootPlan:
    """Which checkpoints stay, and which are dropped."""

    #: The newest first.
    retained: tuple[Root, ...]
    dropped: tuple[Root, ...]
    #: No reader of the grace time or with a pin knows files that were replaced up to this LSN.
    floor: int


@dataclass(frozen=True, slots=True)
class CollectPlan:
    """What to delete, in this order."""

    files: tuple[FoundFile, ...] = ()
    #: The first LSN of the log that stays; None when the whole log stays.
    first_lsn: int | None = None
    roots: tuple[Root, ...] = ()
    #: More files could be deleted after a condemn entry for this LSN; 0 for none.
    condemn: int = 0


def plan_roots(roots: Sequence[Root], *, since: int, pinned: int | None) -> RootPlan:
    """Decide which checkpoints to retain; `since` is when the grace time began (UTC us).

    A root is the newest until the next one is written. So readers may have found the first root
    older than the grace time within it, or another root of the same LSN, which has the same state
    with other pages. A pin keeps the root from which its LSN was reached.
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
    """The facts that a collection is planned on: all files, and the references to them."""

    files: tuple[FoundFile, ...]
    #: Files that a retained checkpoint, a commit after the oldest of them or a clone refers to.
    kept: References
    #: Files that only dropped checkpoints and commits before all retained ones refer to.
    named: References
    roots: RootPlan
    #: Commits can no longer name files that were begun before this LSN.
    condemned: int
    #: The last commit.
    lsn: int
    #: Files older than this that no commit named are orphans (UTC us).
    orphans_before: int

    def goes(self, file: FoundFile) -> bool:
        """Whether this file can be deleted: no process needs it, now or later."""
        if self.kept.has_file(file.path):
            return False
        # A page of a checkpoint older than all retained ones is not needed even if one is written.
        limit = self.roots.retained[-1].lsn if _is_page(file) else self.condemned
        return self.named.has_file(file.path) or (self._is_old(file) and _begun_at(file) < limit)

    def to_condemn(self) -> int:
        """The LSN to condemn so that all orphans can be deleted; 0 if no entry is needed."""
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
    """Decide what to delete by these facts."""
    floor, oldest = facts.roots.floor, facts.roots.retained[-1]
    assert floor <= oldest.lsn <= facts.lsn, "the log goes on behind each retained checkpoint"
    files = tuple(file for file in facts.files if facts.goes(file))
    first_lsn = min(facts.kept.lowest_log_file(), floor + 1) if floor else None
    return CollectPlan(files, first_lsn, facts.roots.dropped, facts.to_condemn())


def _begun_at(file: FoundFile) -> int:
    """The LSN that the writer of a file knew; -1 for a file that no commit can name."""
    file_id = paths.try_file_id(file.path)
    return -1 if file_id is None else begun_at(file_id)


def _is_page(file: FoundFile) -> bool:
    return folder_of(file) == paths.PAGE_FOLDER


def folder_of(file: FoundFile) -> str:
    """The first folder on the file's path."""
    return file.path.partition("/")[0]
