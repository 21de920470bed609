"""Finding dead members of a group, as seen by one member that looks now and then.

All of it is pure: beats and times go in, dead members come out. It never decides about partitions.
It only tells which members to remove from the plan, and the plan fences them. Members form a ring,
and each one watches those behind it up to the first live one. So n members take n looks, not n * n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from kmq_storage.format.group_entries import GroupPlan, PlannedMember

#: A member without a beat for this many looks may not be watching the members behind it.
_QUIET_LOOKS = 4
#: The most steps that one look counts for, since the observer itself may have slept too long.
_OVERSLEPT = 2


@dataclass(slots=True)
class _Seen:
    beat: int | None
    looked: float
    silent: float = 0.0


class Liveness:
    """What one member has seen of the others."""

    def __init__(self, step: float) -> None:
        #: Seconds between two looks.
        self.step = step
        self._seen: Mapping[int, _Seen] = {}

    def dead(
        self, plan: GroupPlan, own: int, beat_of: Callable[[PlannedMember], int | None], now: float
    ) -> set[int]:
        """The epochs of members to remove from the plan; `now` must be a monotonic time.

        `beat_of` returns a number that changes while a member lives, or None when it is gone.
        """
        seen: dict[int, _Seen] = {}
        dead: set[int] = set()
        for epoch, member in _ring(plan, own):
            facts = seen[epoch] = self._looked(epoch, beat_of(member), now)
            gone = facts.beat is None
            if (gone and not member.static) or facts.silent > member.timeout:
                dead.add(epoch)
            elif not gone and facts.silent < _QUIET_LOOKS * self.step:
                break
        self._seen = seen
        return dead

    def _looked(self, epoch: int, beat: int | None, now: float) -> _Seen:
        last = self._seen.get(epoch)
        if last is None or last.beat != beat:
            return _Seen(beat, now)
        passed = min(now - last.looked, _OVERSLEPT * self.step)
        return _Seen(beat, now, last.silent + passed)


def _ring(plan: GroupPlan, own: int) -> Iterator[tuple[int, PlannedMember]]:
    """The other members, beginning with the one that joined next after this one."""
    epochs = sorted(plan.members)  # without a key: they mostly are in order, and each member sorts
    place = bisect_right(epochs, own)
    ring = chain(islice(epochs, place, None), islice(epochs, place))
    return ((epoch, plan.members[epoch]) for epoch in ring if epoch != own)
