"""Finding dead members of a group, as seen by one member that looks now and then.

All of it is pure: beats and times go in, dead members come out. It never decides about partitions.
It only tells which members to remove from the plan, and the plan fences them. Members form a ring,
and each one watches those behind it up to the first live one. So n members take n looks, not n * n.
Behind a quiet one, it looks at many at once: they may have died together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from kmq_storage.format.group_entries import GroupPlan, PlannedMember

#: A member may not be watching those behind it without a beat for this many of its intervals, ...
_QUIET_INTERVALS = 4
#: ... or for this share of its timeout.
_QUIET_SHARE = 0.5
#: Behind a quiet member, each look begins to watch at most this many more, up to one that lives.
_MORE = 32
#: The most steps that one look counts for, since the observer itself may have slept too long.
_OVERSLEPT = 2


@dataclass(slots=True)
class _Seen:
    beat: int | None
    looked: float
    silent: float = 0.0
    #: Whether its beat has changed since the first look.
    showed_life: bool = False


class Liveness:
    """What one member has seen of the others."""

    def __init__(self, interval: Callable[[float, int], float], timeout: float) -> None:
        """`interval`: the seconds between two beats, by the timeout and the number of members."""
        self._interval = interval
        self._timeout = timeout
        #: Seconds between two looks.
        self.step = interval(timeout, 1)
        self._seen: Mapping[int, _Seen] = {}

    def dead(
        self, plan: GroupPlan, own: int, beat_of: Callable[[PlannedMember], int | None], now: float
    ) -> set[int]:
        """The epochs of members to remove from the plan; `now` must be a monotonic time.

        `beat_of` returns a number that changes while a member lives, or None when it is gone.
        """
        seen: dict[int, _Seen] = {}
        dead: set[int] = set()
        more = 1
        for epoch, member in _ring(plan, own):
            facts = seen[epoch] = self._looked(epoch, beat_of(member), now)
            gone = facts.beat is None
            if (gone and not member.static) or facts.silent > member.timeout:
                dead.add(epoch)
            if facts.silent >= self._quiet(member, len(plan.members)):
                more = _MORE
            elif not gone:
                if facts.showed_life or more == 1:
                    break
                more -= epoch not in self._seen
        self._seen = seen
        self.pace(plan, own)
        return dead

    def pace(self, plan: GroupPlan, own: int) -> None:
        """Look as often as those ask for that this member watches, or will first."""
        watched = islice(_ring(plan, own), len(self._seen) or 1)
        timeout = min([self._timeout, *(member.timeout for _, member in watched)])
        self.step = self._interval(timeout, len(plan.members))

    def _quiet(self, member: PlannedMember, members: int) -> float:
        beats = _QUIET_INTERVALS * self._interval(member.timeout, members)
        return min(beats, _QUIET_SHARE * member.timeout)

    def _looked(self, epoch: int, beat: int | None, now: float) -> _Seen:
        last = self._seen.get(epoch)
        if last is None or last.beat != beat:
            return _Seen(beat, now, showed_life=last is not None)
        passed = min(now - last.looked, _OVERSLEPT * self.step)
        return _Seen(beat, now, last.silent + passed, last.showed_life)


def _ring(plan: GroupPlan, own: int) -> Iterator[tuple[int, PlannedMember]]:
    """The other members, beginning with the one that joined next after this one."""
    epochs = sorted(plan.members)  # without a key: they mostly are in order, and each member sorts
    place = bisect_right(epochs, own)
    ring = chain(islice(epochs, place, None), islice(epochs, place))
    return ((epoch, plan.members[epoch]) for epoch in ring if epoch != own)
