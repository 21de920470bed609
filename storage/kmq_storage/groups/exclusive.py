"""The exclusive member of a group, such as a Spark query; `membership` is for shared groups.

Both kinds of members check the other kind's locks, and both take a new generation when they join.
So if two join at the same time, binding refuses one of them, which then checks again and fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kmq_storage import paths
from kmq_storage.environment import this_process
from kmq_storage.errors import FencedError, IllegalStateError
from kmq_storage.format.entries import GroupEntry
from kmq_storage.groups.membership import live_members
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.names import check_name

_TRIES, _PAUSE = 10_000, 0.001


class ExclusiveMembership:
    """The exclusive membership in a group, which a kernel frees when its process dies.

    In a bucket, there is no such kernel. There, a member with the same name as the last one takes
    its place back at once: its earlier process is dead, or is fenced by the new generation. Other
    members wait until the lease ends.
    """

    def __init__(self, log: CommitLog, group: str, member: str, *, told: str) -> None:
        """Join as this member; `told` comes before the process in its description for others."""
        self._log = log
        self._client = f"{told}, {this_process()}"
        self._group = check_name("group", group)
        self._lock = log.files.open_lock(paths.member_lock(group))
        with translated(log.files.url):
            if not self._has_taken() and not self._has_taken_back(member):
                raise _taken(group, self._lock.holder())
        try:
            self._join(member)
        except BaseException:
            self._lock.release()
            raise

    def _has_taken(self) -> bool:
        """Try to take the lock; retries, as a check by another process holds it for a moment."""
        for _ in range(_TRIES):
            if self._lock.try_acquire():
                return True
            if self._lock.is_held():  # by a member: checks don't see each other
                return False
            self._log.environment.sleep(_PAUSE)
        return False

    def _has_taken_back(self, member: str) -> bool:
        known = self._log.refresh().group(self._group)
        return known.member == member and self._lock.take_over()

    def _join(self, member: str) -> None:
        self._member = member
        while True:
            known = self._log.written_state().group(self._group)
            for other in live_members(self._log, known).values():
                raise _taken(self._group, f"member {other.name} of {other.client}")
            self.generation = known.generation + 1
            with suppress(FencedError):  # another member was faster
                self.tell_assignment({})
                return

    def tell_assignment(self, assignment: Mapping[str, list[int]]) -> None:
        """Commit which partitions this member reads."""
        entry = GroupEntry(self._group, self.generation, self._member, self._client, assignment)
        self._log.commit([Unit((entry,))])

    def leave(self) -> None:
        """Release the lock for the next member."""
        self._lock.release()


def has_exclusive_member(log: CommitLog, group: str) -> bool:
    """Whether the group has a live exclusive member."""
    with translated(log.files.url):
        return log.files.open_lock(paths.member_lock(group)).is_held()


def _taken(group: str, holder: str) -> IllegalStateError:
    return IllegalStateError(
        f"group {group} has a live member already ({holder}); a reader that "
        "needs it alone, as a query of Spark does, must wait until that one is closed",
        group=group,
        holder=holder,
    )
