"""The place of who reads a group alone, as a query of Spark does; `membership` is for the others.

Each of the two looks at the other's locks, and both take a generation when they come in: of two at
the same time one is refused when its commit is bound, looks again, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kmq_storage import paths
from kmq_storage.environment import this_process
from kmq_storage.errors import FencedError, IllegalStateError
from kmq_storage.format.entries import GroupEntry
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.group_state import Group
from kmq_storage.membership import live_members
from kmq_storage.names import check_name

_TRIES, _PAUSE = 10_000, 0.001


class ExclusiveMembership:
    """The place of who has a group for itself; a kernel lock frees it when its process dies.

    In a bucket no kernel does. There who was the last member takes its place back at once, as its
    earlier process is dead, or is fenced by the new generation; others wait for the lease's end.
    """

    def __init__(self, log: CommitLog, group: str, member: str, *, told: str) -> None:
        """Join as this member; `told` goes before the process in what others are told of it."""
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
        """Whether the place is ours now; who only looks whether it is taken has it for a moment."""
        for _ in range(_TRIES):
            if self._lock.try_acquire():
                return True
            if self._lock.is_held():  # for longer: who looks is not seen by others who do
                return False
            self._log.environment.sleep(_PAUSE)
        return False

    def _has_taken_back(self, member: str) -> bool:
        known = self._log.refresh().groups.get(self._group)
        return known is not None and known.member == member and self._lock.take_over()

    def _join(self, member: str) -> None:
        self._member = member
        while True:
            known = self._log.written_state().groups.get(self._group) or Group()
            for other in live_members(self._log, known).values():
                raise _taken(self._group, f"member {other.name} of {other.client}")
            self.generation = known.generation + 1
            with suppress(FencedError):  # somebody else was faster
                self.tell_assignment({})
                return

    def tell_assignment(self, assignment: Mapping[str, list[int]]) -> None:
        """Have everybody see which partitions this member reads."""
        entry = GroupEntry(self._group, self.generation, self._member, self._client, assignment)
        self._log.commit([Unit((entry,))])

    def leave(self) -> None:
        """Make room for the next member."""
        self._lock.release()


def has_exclusive_member(log: CommitLog, group: str) -> bool:
    """Whether somebody reads the group alone now."""
    with translated(log.files.url):
        return log.files.open_lock(paths.member_lock(group)).is_held()


def _taken(group: str, holder: str) -> IllegalStateError:
    return IllegalStateError(
        f"group {group} has a live member already ({holder}); who reads it alone, as a query of "
        "Spark does, must wait until that one is closed",
        group=group,
        holder=holder,
    )
