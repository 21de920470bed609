"""Members that share a group among simulated processes: they join, read, commit, stall and die."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar, NamedTuple

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
from kmq_storage.objects import lease
from tests.simulation.bucket_world import BucketWorld
from tests.simulation.scheduler import Task
from tests.simulation.threads import THREADS, TaskFlag
from tests.simulation.watch import Watch
from tests.simulation.world import World

GROUP = "shared"
_SHARERS, _TURNS = 4, (8, 30)
#: More than it takes to find all others dead.
_LOOKS = 80
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


class Reader(NamedTuple):
    """Who reads a partition, as far as it knows."""

    number: int
    epoch: int
    #: The newest generation that it knew when it began.
    generation: int


class Sharing(World):
    """What a world has in which some processes share a group, too."""

    member: ClassVar[type[Sharer]]
    #: How long a member may be silent (seconds).
    timeout = 0.4

    def __init__(self, seed: int) -> None:
        self.read_by: dict[Key, Reader] = {}
        #: The highest offsets whose commit was acknowledged.
        self.committed: dict[Key, int] = {}
        #: The offsets behind the last records that somebody read.
        self.read_to: dict[Key, int] = {}
        super().__init__(seed)

    def _new_watch(self) -> Watch:
        return GroupWatch(super()._new_watch())

    def _tasks(self) -> list[Task]:
        numbers = [self.next_incarnation() for _ in range(_SHARERS)]
        sharers = [Task(f"member {n}", self.member(self, n).run) for n in numbers]
        return super()._tasks() + sharers

    def end_member(self) -> None:
        """The process of a member comes to its end, but for the lock that it may have."""

    def finish(self) -> None:
        """Check what is left; and that who comes last gets everything, whoever died."""
        super().finish()
        self.scheduler.run([Task("the last one", self.member(self, self.next_incarnation()).last)])
        if self.scheduler.failures:
            raise self.scheduler.failures[0]


class GroupWorld(Sharing):
    """On a disk."""


class GroupBucketWorld(Sharing, BucketWorld):
    """In a bucket, where members have leases, and each request takes its time."""

    limits = ((lease, "threading", THREADS), (lease, "Flag", TaskFlag))
    timeout = 30.0

    def end_member(self) -> None:
        """It ends with the thread of its lease."""
        self.scheduler.kill()

    def _make_place(self) -> None:
        THREADS.scheduler = self.scheduler
        super()._make_place()


class Sharer:
    """One process that is a member, through a handle of its own."""

    def __init__(self, world: Sharing, number: int) -> None:
        self._world = world
        self._number = number
        self._rng = random.Random(world.rng.getrandbits(64))
        self._interest = self._rng.choice(_INTERESTS)
        self._positions: dict[Key, int] = {}

    def run(self) -> None:
        """Take part for some turns, then leave, or just end."""
        self._take_part(self._world.open(writes=True))
        self._world.end_member()

    def _take_part(self, log: CommitLog) -> None:
        static = self._rng.random() < 0.3
        name = f"s{self._number % 2}" if static else f"m{self._number}"
        place = SharedMembership(
            log, GROUP, MemberSettings(name, static, "sticky", self._world.timeout)
        )
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
            with suppress(UnavailableError):
                place.leave()

    def _place(self, log: CommitLog, name: str, *, static: bool) -> SharedMembership:
        settings = MemberSettings(name, static, "sticky", self._world.timeout)
        return SharedMembership(log, GROUP, settings)

    def last(self) -> None:
        """Join when nobody else is there, and take over everything."""
        log = self._world.open(writes=True)
        place = self._place(log, "last", static=False)
        place.enter(Interest(tuple(self._world.topics)))
        plan = GroupPlan()
        for _ in range(_LOOKS):
            self._world.scheduler.clock += self._world.timeout
            place.look_around()
            state = log.refresh()
            plan = _plan_of(state)
            if set(plan.members) == {place.epoch} and not plan.targets:
                break
        owned = set(plan.owned_by(place.epoch))
        topics = map(state.topic, self._world.topics)
        wanted = {(topic.id, n) for topic in topics for n in range(topic.partitions)}
        assert owned == wanted, "a partition stayed with who is not there"
        for key in owned:
            self._begin_at(state, key)
        self._world.end_member()

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
        for key in sorted(owned - set(plan.targets) - set(self._positions)):
            self._begin_reading(key, plan, Reader(self._number, epoch, _generation_of(state)))
            self._positions[key] = self._begin_at(state, key)
        for key, position in self._positions.items():
            topic = state.topic_by_id(key[0])
            assert topic is not None
            part = topic.partition(key[1])
            begin = part.readable_from(position)
            most = self._rng.randrange(part.end - begin + 1)
            self._positions[key] = self._read(key, begin, begin + most)
            self._note_read(key, self._positions[key])

    def _note_read(self, key: Key, end: int) -> None:
        read = self._world.read_to
        read[key] = max(read.get(key, 0), end)

    def _begin_at(self, state: StoreState, key: Key) -> int:
        """Where the group goes on: where a commit said, and behind nothing that nobody read."""
        position = state.group_offsets(GROUP).get(key[0], {}).get(key[1], 0)
        assert position >= self._world.committed.get(key, 0), "a commit was taken back"
        topic = state.topic_by_id(key[0])
        assert topic is not None
        passed = max(self._world.read_to.get(key, 0), topic.partition(key[1]).start)
        assert position <= passed, "nobody read what is before it"
        return position

    def _read(self, key: Key, begin: int, end: int) -> int:
        """The offset behind what it is done with, of these."""
        return end

    def _begin_reading(self, key: Key, plan: GroupPlan, reader: Reader) -> None:
        other = self._world.read_by.get(key)
        if other is not None and other.generation > reader.generation:
            return  # it knows less: what it commits is refused
        if other is not None and other.number != self._number:
            assert other.epoch not in plan.members, f"{key} is read by two, {other}, {reader}"
        self._world.read_by[key] = reader

    def _stop_reading(self, keys: set[Key]) -> None:
        for key in keys:
            del self._positions[key]
            reader = self._world.read_by.get(key)
            if reader is not None and reader.number == self._number:
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


Sharing.member = Sharer


def _plan_of(state: StoreState) -> GroupPlan:
    group = state.groups.get(GROUP)
    return group.plan if group else GroupPlan()


def _generation_of(state: StoreState) -> int:
    return state.group(GROUP).generation


def _check_names(plan: GroupPlan) -> None:
    names = [each.name for each in plan.members.values() if each.static]
    assert len(names) == len(set(names)), "two members have one name"
    ids = [each.id for each in plan.members.values()]
    assert len(ids) == len(set(ids)), "a member is there twice"
