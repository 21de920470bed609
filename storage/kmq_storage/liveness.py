"""Who of a group's members is dead, as one of them sees it by looking now and then.

Pure: beats and times in, the dead out. It never decides who owns a partition: it only says whom to
plan away, and a plan is what fences. Members stand in a ring, and each looks after those behind
it up to the first that shows life: with n members that are n looks, not n * n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kmq_storage.format.group_entries import GroupPlan, PlannedMember

#: Who didn't beat for so many looks may be unable to look after those behind it.
_QUIET_LOOKS = 4
#: A look counts for the time since the last one, but not for what the observer itself overslept.
_OVERSLEPT = 2


@dataclass(slots=True)
class _Seen:
    beat: int | None
    looked: float
    silent: float = 0.0


class Liveness:
    """What one member saw of the others."""

    def __init__(self, step: float) -> None:
        #: Seconds between two looks.
        self._step = step
        self._seen: Mapping[int, _Seen] = {}

    def dead(
        self, plan: GroupPlan, own: int, beat_of: Callable[[PlannedMember], int | None], now: float
    ) -> set[int]:
        """The epochs that are to be planned away; `now` never goes back.

        `beat_of`: a number that changes while a member lives, None when it is gone.
        """
        seen: dict[int, _Seen] = {}
        dead: set[int] = set()
        for epoch, member in _ring(plan, own):
            facts = seen[epoch] = self._looked(epoch, beat_of(member), now)
            gone = facts.beat is None
            if (gone and not member.static) or facts.silent > member.timeout:
                dead.add(epoch)
            elif not gone and facts.silent < _QUIET_LOOKS * self._step:
                break
        self._seen = seen
        return dead

    def _looked(self, epoch: int, beat: int | None, now: float) -> _Seen:
        last = self._seen.get(epoch)
        if last is None or last.beat != beat:
            return _Seen(beat, now)
        passed = min(now - last.looked, _OVERSLEPT * self._step)
        return _Seen(beat, now, last.silent + passed)


def _ring(plan: GroupPlan, own: int) -> Iterator[tuple[int, PlannedMember]]:
    """The other members, beginning with the one that joined next after this one."""
    epochs = sorted(plan.members, key=lambda epoch: (epoch <= own, epoch))
    return ((epoch, plan.members[epoch]) for epoch in epochs if epoch != own)
