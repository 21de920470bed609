"""Members that share a group among simulated processes: they join, read, commit, stall and die."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from kmq_storage.errors import (
    CorruptionError,
    FencedError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from kmq_storage.format.entries import Entry, GroupOffsetsEntry
from kmq_storage.format.group_entries import GroupPlan, GroupPlanEntry, Interest
from kmq_storage.format.manifest import Key
from kmq_storage.groups.membership import MemberSettings, SharedMembership
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.store_state import StoreState
from tests.simulation.scheduler import Task
from tests.simulation.watch import Watch
from tests.simulation.world import World

GROUP = "shared"
_SHARERS, _TURNS = 4, (8, 30)
_TIMEOUT = 0.4
_INTERESTS = (Interest(("orders", "audit")), Interest(pattern="o"), Interest(("orders",)))


class GroupWatch(Watch):
    """Stands beside a handle, and knows the state that a commit will follow."""

    def __init__(self, watch: Watch) -> None:
        vars(self).update(vars(watch))

    def tell(self, state: StoreState, entries: Sequence[Entry]) -> None:
        """These entries are about to be written behind this state."""
        super().tell(state, entries)
        before = _plan_of(state)
        for entry in entries:
            if isinstance(entry, GroupOffsetsEntry) and entry.group == GROUP:
                for number, _ in entry.offsets:
                    owner = before.owners.get((entry.topic_id, number))
                    assert owner == entry.generation, "a commit of who does not own it"
            elif isinstance(entry, GroupPlanEntry):
                for key, owner in before.owners.items():
                    stays = entry.plan.owners.get(key, owner) == owner
                    assert stays or owner not in entry.plan.members, "taken from a member"


class GroupWorld(World):
    """A world in which some processes share a group, too."""

    member: ClassVar[type[Sharer]]

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        #: Who reads a partition, as far as the processes know: the member's number and epoch.
        self.read_by: dict[Key, tuple[int, int]] = {}
        #: The highest offsets whose commit was acknowledged.
        self.committed: dict[Key, int] = {}

    def _new_watch(self) -> Watch:
        return GroupWatch(super()._new_watch())

    def _tasks(self) -> list[Task]:
        numbers = [self.next_incarnation() for _ in range(_SHARERS)]
        sharers = [Task(f"member {n}", self.member(self, n).run) for n in numbers]
        return super()._tasks() + sharers


class Sharer:
    """One process that is a member, through a handle of its own."""

    def __init__(self, world: GroupWorld, number: int) -> None:
        self._world = world
        self._number = number
        self._rng = random.Random(world.rng.getrandbits(64))
        self._interest = self._rng.choice(_INTERESTS)
        self._positions: dict[Key, int] = {}

    def run(self) -> None:
        """Take part for some turns, then leave, or just end."""
        log = self._world.open(writes=True)
        static = self._rng.random() < 0.3
        name = f"s{self._number % 2}" if static else f"m{self._number}"
        place = SharedMembership(log, GROUP, MemberSettings(name, static, "sticky", _TIMEOUT))
        for _ in range(self._rng.randrange(*_TURNS)):
            try:
                self._turn(log, place)
            except UnavailableError:
                continue
            except FencedError:
                return  # a newer one of its name
            except CorruptionError:
                if not self._world.machine.failed:
                    raise
        if self._rng.random() < 0.7:
            self._stop_reading(set(self._positions))
            try:
                place.leave()
            except UnavailableError:
                return

    def _turn(self, log: CommitLog, place: SharedMembership) -> None:
        state = log.refresh()
        plan = _plan_of(state)
        if not place.is_in(plan):
            self._stop_reading(set(self._positions))
            place.enter(self._interest)
            self._world.done["joined"] += 1
            state = log.refresh()
            plan = _plan_of(state)
        _check_names(plan)
        self._follow(state, plan, place.epoch)
        if self._rng.random() < 0.4:
            self._world.scheduler.stall()  # perhaps for longer than the others wait
        if self._rng.random() < 0.7:
            self._commit(log, state, place.epoch)
        self._release(state, plan, place)
        place.beat()
        place.renew()
        place.look_around()
        self._world.rest(log, state.lsn)

    def _follow(self, state: StoreState, plan: GroupPlan, epoch: int) -> None:
        """Read what is its own and stays so, and what it has yet to release."""
        owned = set(plan.owned_by(epoch))
        self._stop_reading(set(self._positions) - owned)
        committed = state.group_offsets(GROUP)
        for key in sorted(owned - set(plan.targets) - set(self._positions)):
            self._begin_reading(key, plan, epoch)
            self._positions[key] = position = committed.get(key[0], {}).get(key[1], 0)
            assert position >= self._world.committed.get(key, 0), "a commit was taken back"
        for key, position in self._positions.items():
            topic = state.topic_by_id(key[0])
            assert topic is not None
            part = topic.partition(key[1])
            begin = part.readable_from(position)
            most = self._rng.randrange(part.end - begin + 1)
            self._positions[key] = self._read(key, begin, begin + most)

    def _read(self, key: Key, begin: int, end: int) -> int:
        """The offset behind what it is done with, of these."""
        return end

    def _begin_reading(self, key: Key, plan: GroupPlan, epoch: int) -> None:
        other = self._world.read_by.get(key)
        if other is not None and other[0] != self._number:
            assert other[1] not in plan.members, f"{key} is read by two members, {other}, {epoch}"
        self._world.read_by[key] = (self._number, epoch)

    def _stop_reading(self, keys: set[Key]) -> None:
        for key in keys:
            del self._positions[key]
            if self._world.read_by.get(key, (0, 0))[0] == self._number:
                del self._world.read_by[key]

    def _commit(self, log: CommitLog, state: StoreState, epoch: int) -> None:
        entries = self._offsets(set(self._positions), epoch)
        try:
            if entries:
                log.commit([Unit(entries)])
                self._note({(e.topic_id, number): at for e in entries for number, at in e.offsets})
        except FencedError:
            self._world.done["fenced"] += 1
            self._stop_reading(set(self._positions))
        except OffsetOutOfRangeError:
            pass  # trimmed meanwhile

    def _note(self, offsets: dict[Key, int]) -> None:
        known = self._world.committed
        known.update({key: max(at, known.get(key, 0)) for key, at in offsets.items()})

    def _offsets(self, keys: set[Key], epoch: int) -> tuple[GroupOffsetsEntry, ...]:
        return tuple(
            GroupOffsetsEntry(GROUP, epoch, key[0], ((key[1], self._positions[key]),))
            for key in sorted(keys)
        )

    def _release(self, state: StoreState, plan: GroupPlan, place: SharedMembership) -> None:
        moving = set(plan.owned_by(place.epoch)) & set(plan.targets)
        if moving and self._rng.random() < 0.8:
            offsets = self._offsets(moving & set(self._positions), place.epoch)
            self._stop_reading(moving & set(self._positions))
            self._world.scheduler.stall()  # the group may be planned anew meanwhile
            place.release(moving, offsets)
            self._world.done["released"] += 1


GroupWorld.member = Sharer


def _plan_of(state: StoreState) -> GroupPlan:
    group = state.groups.get(GROUP)
    return group.plan if group else GroupPlan()


def _check_names(plan: GroupPlan) -> None:
    names = [each.name for each in plan.members.values() if each.static]
    assert len(names) == len(set(names)), "two members have one name"
