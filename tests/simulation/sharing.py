"""What must hold of a group that simulated processes share, whoever reads for them.

Each tells here which partitions come and go, what it read, and which of its commits were answered.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kmq_storage.format.entries import Entry, GroupOffsetsEntry
from kmq_storage.format.group_entries import GroupPlan, GroupPlanEntry
from kmq_storage.format.manifest import Key
from kmq_storage.log.state.store_state import StoreState
from tests.simulation.oracle import Oracle
from tests.simulation.scheduler import Scheduler
from tests.simulation.watch import Watch

if TYPE_CHECKING:
    from tests.simulation.group_world import Sharing
    from tests.simulation.world import WatchedLog

GROUP = "shared"


class Reader(NamedTuple):
    """Who reads a partition, as far as it knows."""

    number: int
    epoch: int
    #: The newest generation that it knew when it began.
    generation: int


@dataclass
class Shared:
    """What is known of a group from outside."""

    read_by: dict[Key, Reader] = field(default_factory=dict)
    #: The offsets behind the last records that somebody read.
    read_to: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    #: The highest offsets whose commit was answered, by the generation before the commit.
    committed: dict[Key, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def note(self, key: Key, generation: int, offset: int) -> None:
        """A commit was answered."""
        known = self.committed[key]
        known[generation] = max(offset, known.get(generation, 0))

    def highest(self, key: Key, generation: float) -> int:
        """The highest offset that was committed up to a generation."""
        known = self.committed[key].items()
        return max((offset for at, offset in known if at <= generation), default=0)

    def check_was_read(self, oracle: Oracle, state: StoreState, key: Key, offset: int) -> None:
        """Nobody passes over records that nobody read."""
        topic = state.topic_by_id(key[0])
        assert topic is not None
        passed = max(self.read_to[key], topic.partition(key[1]).first)
        oracle.check_missing((topic.name, key[1]), (passed, offset), {})


class GroupWatch(Watch):
    """Stands beside a handle, and knows the state that a commit will follow."""

    def __init__(self, watch: Watch, shared: Shared, scheduler: Scheduler) -> None:
        vars(self).update(vars(watch))
        self._shared = shared
        self._scheduler = scheduler
        #: That of the group before the last commit of offsets.
        self.generation = 0
        #: The id of its member while that gives up what it has.
        self.gives_up = ""

    def tell(self, state: StoreState, entries: Sequence[Entry]) -> None:
        """These entries are about to be written behind this state."""
        with self._scheduler.judging():
            super().tell(state, entries)
            for entry in entries:
                if isinstance(entry, GroupOffsetsEntry) and entry.group == GROUP:
                    self._tell_of_offsets(state, entry)
                elif isinstance(entry, GroupPlanEntry):
                    _check_plan(plan_of(state), entry.plan, self.gives_up)

    def _tell_of_offsets(self, state: StoreState, entry: GroupOffsetsEntry) -> None:
        self.generation = generation_of(state)
        owners = plan_of(state).owners
        for number, offset in entry.offsets:
            key = entry.topic_id, number
            assert owners.get(key) == entry.generation, "a commit of who does not own it"
            self._shared.check_was_read(self._oracle, state, key, offset)


def _check_plan(before: GroupPlan, after: GroupPlan, gives_up: str) -> None:
    for key, owner in before.owners.items():
        member = after.members.get(owner)
        stays = member is None or after.owners.get(key, owner) == owner
        assert stays or member.id == gives_up, "taken from a member"
    names = [each.name for each in after.members.values() if each.static]
    assert len(names) == len(set(names)), "two members have one name"
    ids = [each.id for each in after.members.values()]
    assert len(ids) == len(set(ids)), "a member is there twice"


class Sharer:
    """One process that is a member, through a handle of its own."""

    def __init__(self, world: Sharing, number: int) -> None:
        self._world = world
        self._shared = world.shared
        self._number = number
        self._rng = random.Random(world.rng.getrandbits(64))
        #: The partitions that it reads.
        self._reads: dict[Key, None] = {}

    def run(self) -> None:
        """Take part for some turns, then leave, or just end."""
        self._take_part(self._world.open(writes=True))
        self._world.scheduler.kill()  # its other threads end with it

    def _take_part(self, log: WatchedLog) -> None:
        raise NotImplementedError

    def count(self, what: str, times: int = 1) -> None:
        """This happened."""
        self._world.done[what] += times

    def gained(self, state: StoreState, epoch: int, begins: Mapping[Key, int]) -> None:
        """It reads these from now on, from these offsets on: those of the group."""
        generation = generation_of(state)
        for key in self.goes_on(state, epoch, begins):
            begin, known = begins[key], self._shared.highest(key, generation)
            topic = state.topic_by_id(key[0])
            assert topic is not None
            found = max(begin, topic.partition(key[1]).first)
            assert found >= known, f"a commit was taken back: {begin}, not {known}"
            self._shared.check_was_read(self._world.oracle, state, key, begin)

    def goes_on(self, state: StoreState, epoch: int, keys: Iterable[Key]) -> list[Key]:
        """It reads these; returns those that are its own by what is known of the group."""
        self._reads |= dict.fromkeys(keys)
        plan, reader = plan_of(state), Reader(self._number, epoch, generation_of(state))
        # Of others that were lost meanwhile each commit is refused.
        own = [key for key in keys if plan.owners.get(key) == epoch]
        for key in own:
            self._begin_reading(key, plan, reader)
        return own

    def _begin_reading(self, key: Key, plan: GroupPlan, reader: Reader) -> None:
        other = self._shared.read_by.get(key)
        if other is not None and other.generation > reader.generation:
            return  # it knows less: what it commits is refused
        if other is not None and other.number != self._number:
            assert other.epoch not in plan.members, f"{key} is read by two, {other}, {reader}"
        self._shared.read_by[key] = reader

    def lost(self, keys: Iterable[Key]) -> None:
        """It reads these no more."""
        for key in keys:
            self._reads.pop(key, None)
            reader = self._shared.read_by.get(key)
            if reader is not None and reader.number == self._number:
                del self._shared.read_by[key]

    def read(self, key: Key, end: int) -> None:
        """It read up to here."""
        read_to = self._shared.read_to
        read_to[key] = max(read_to[key], end)

    def committed(self, log: WatchedLog, offsets: Mapping[Key, int]) -> None:
        """A commit of these was answered."""
        assert isinstance(log.watch, GroupWatch)
        for key, offset in offsets.items():
            self._shared.note(key, log.watch.generation, offset)


def plan_of(state: StoreState) -> GroupPlan:
    """The plan of the group, perhaps one without members."""
    group = state.groups.get(GROUP)
    return group.plan if group else GroupPlan()


def generation_of(state: StoreState) -> int:
    """The generation of the group."""
    return state.group(GROUP).generation
