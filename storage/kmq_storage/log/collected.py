"""How far a bucket's log was collected, and when that can be ruled out without looking.

A commit's name is free again once its object was deleted, so a writer or reader that slept may
take an old LSN for the next one. Two rules keep it from harm:

1. Who deletes commits first marks their last LSN as collected, and deletes only what was marked
   `COLLECTED_LOG_GRACE` ago by the clock of the store.
2. Who saw the log's end, or read the marks, less than half of that ago may go on: what came
   after it is still there. Everybody else reads the marks before what they saw counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.objects.bucket_files import BucketFiles


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant on this host, by two clocks: one stops in a suspended machine, one is set."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls, environment: Environment) -> Moment:
        """This instant."""
        return cls(environment.monotonic(), environment.now_ns() / 1e9)

    def seconds_to(self, later: Moment) -> float:
        """How much later the other instant is: the more, the more careful."""
        return max(later.monotonic - self.monotonic, later.wall - self.wall)


def is_recent(since: Moment | None, environment: Environment) -> bool:
    """Whether what was seen at that moment still rules out that commits were deleted."""
    if since is None:
        return False
    return since.seconds_to(Moment.now(environment)) < limits.COLLECTED_LOG_GRACE / 2


def collected_lsn(files: BucketFiles) -> int:
    """The highest LSN that is marked as collected; 0 when there is none."""
    return max((lsn for lsn, _ in _marks(files)), default=0)


def marked_long_ago(files: BucketFiles, lsn: int) -> int | None:
    """When a commit was marked, by the store's clock, if so long ago that its name may be free.

    The newest of the old marks is never forgotten: where there is none, no name was free again.
    """
    marks = [marked for found, marked in _marks(files) if found >= lsn]
    before = files.now() - round(limits.COLLECTED_LOG_GRACE * 1e6) if marks else 0
    return min((marked for marked in marks if marked < before), default=None)


def mark_collected(files: BucketFiles, lsn: int) -> None:
    """Say that nobody needs the commits up to this one: a checkpoint above it stands."""
    files.publish(paths.collected_mark(lsn), [b"-"], sync=True)


def deletable_lsn(files: BucketFiles) -> int:
    """Up to which LSN commits may be deleted now; 0 for none. Forgets marks that say no more."""
    before = files.now() - round(limits.COLLECTED_LOG_GRACE * 1e6)
    old = sorted(lsn for lsn, marked in _marks(files) if marked < before)
    for lsn in old[:-1]:
        files.remove(paths.collected_mark(lsn))
    return old[-1] if old else 0


def _marks(files: BucketFiles) -> Iterator[tuple[int, int]]:
    """The marks: their LSNs, and when they were made by the clock of the store."""
    for found in files.walk(paths.COLLECTED_FOLDER):
        lsn = paths.try_collected_lsn(found.path)
        if lsn is not None:
            yield lsn, found.modified
