"""Marks that tell how far a bucket's log was collected, and when they need not be read.

A commit's name is free again once its object is deleted. So a writer or reader that slept could
take an old LSN for the next one. Two rules prevent this:

1. A collector first marks the last LSN as collected. It deletes only commits that were marked at
   least `COLLECTED_LOG_GRACE` ago, by the store's clock.
2. A process that saw the log's end, or read the marks, less than half of that time ago may go on:
   commits after that end still exist. Any other process reads the marks first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kmq_storage import limits, paths
from kmq_storage.environment import Environment
from kmq_storage.objects.bucket_files import BucketFiles


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant by two clocks of this host.

    The monotonic clock stops while the machine is suspended, and the wall clock may be set.
    """

    monotonic: float
    wall: float

    @classmethod
    def now(cls, environment: Environment) -> Moment:
        """The present moment by both clocks."""
        return cls(environment.monotonic(), environment.now_ns() / 1e9)

    def seconds_to(self, later: Moment) -> float:
        """How much later the other instant is, by the clock that shows more."""
        return max(later.monotonic - self.monotonic, later.wall - self.wall)


def is_recent(since: Moment | None, environment: Environment) -> bool:
    """Whether a look at this moment still rules out that commits after it were deleted."""
    if since is None:
        return False
    return since.seconds_to(Moment.now(environment)) < limits.COLLECTED_LOG_GRACE / 2


def collected_lsn(files: BucketFiles) -> int:
    """The highest LSN that is marked as collected; 0 when there is none."""
    return max((lsn for lsn, _ in _marks(files)), default=0)


def marked_long_ago(files: BucketFiles, lsn: int) -> int | None:
    """When a commit was marked, by the store's clock, if its name may be free again by now.

    The newest old mark is never removed. So when there is none, no name is free again.
    """
    marks = [marked for found, marked in _marks(files) if found >= lsn]
    before = files.now() - round(limits.COLLECTED_LOG_GRACE * 1e6) if marks else 0
    return min((marked for marked in marks if marked < before), default=None)


def mark_collected(files: BucketFiles, lsn: int) -> None:
    """Mark the commits up to this one as collected, since a later checkpoint replaces them."""
    files.publish(paths.collected_mark(lsn), [b"-"], sync=True)


def deletable_lsn(files: BucketFiles) -> int:
    """The LSN up to which commits may be deleted now, or 0; removes old marks below it."""
    before = files.now() - round(limits.COLLECTED_LOG_GRACE * 1e6)
    old = sorted(lsn for lsn, marked in _marks(files) if marked < before)
    for lsn in old[:-1]:
        files.remove(paths.collected_mark(lsn))
    return old[-1] if old else 0


def _marks(files: BucketFiles) -> Iterator[tuple[int, int]]:
    """The LSNs of all marks, and when they were written by the store's clock."""
    for found in files.walk(paths.COLLECTED_FOLDER):
        lsn = paths.try_collected_lsn(found.path)
        if lsn is not None:
            yield lsn, found.modified
