"""A member that shares a group: it joins, plans, releases partitions, watches others and leaves.

`planning` and `liveness` decide, and this module commits their decisions. When another member
has changed the group meanwhile, the decision is made again on the new state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from kmq_storage import paths
from kmq_storage.environment import Environment, this_process
from kmq_storage.errors import (
    ConflictError,
    FencedError,
    IllegalStateError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.format.group_entries import (
    GroupPlan,
    GroupPlanEntry,
    GroupReleaseEntry,
    Interest,
    PlannedMember,
)
from kmq_storage.format.manifest import Key
from kmq_storage.groups import planning
from kmq_storage.groups.liveness import Liveness
from kmq_storage.groups.planning import Topics
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.state.group_state import Group
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.names import queue_of_log
from kmq_storage.objects.files import Lock

#: Seconds between two looks at the other members, where a look costs no request.
_STEP = 0.25
#: The number of looks within the timeout of a silent member, where a look costs requests.
_LOOKS_PER_TIMEOUT = 3
#: The most looks per second of a whole group, as long as the timeouts allow; more would keep the
#: processors of one host busy.
_LOOKS_PER_SECOND = 400
#: A new member looks at this many of the others. Beyond, it looks on only until one of them lives.
_LOOKED_AT = 32

#: A Spark query ends for its user before its process does. This is how long (seconds) to wait for
#: the process to die, and the step between two looks.
_TO_DIE, _TO_DIE_STEP = 2.0, 0.05

#: The generation of a group, which may come a second time when another value of
#: `StoreState.losses` stands beside it.
Version: TypeAlias = tuple[int, int]
NOT_SEEN: Version = (0, 0)


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The settings of a member."""

    name: str
    #: Whether the user chose the name; its partitions then wait `timeout` seconds for it to return.
    static: bool
    assignor: str
    timeout: float


class SharedMembership:
    """One member's part in a group; the member's lock tells that it lives."""

    def __init__(self, log: CommitLog, group: str, settings: MemberSettings) -> None:
        self._log = log
        self._group = group
        self._settings = settings
        self._client = this_process()
        #: The generation in which the member joined; 0 before.
        self.epoch = 0
        #: Never used again, as an epoch may be whose plan a failed sync took back.
        self.id = ""
        self._lock: Lock | None = None
        self._liveness = Liveness(self._interval, settings.timeout)

    def _interval(self, timeout: float, members: int) -> float:
        longest = timeout / _LOOKS_PER_TIMEOUT
        if self._log.is_remote:
            return longest
        return min(max(_STEP, members / _LOOKS_PER_SECOND), longest)

    @property
    def step(self) -> float:
        """Seconds between two looks at the other members."""
        return self._liveness.step

    @property
    def environment(self) -> Environment:
        """The environment, for time."""
        return self._log.environment

    def version(self) -> Version:
        """The version of the group at the last refresh."""
        return version_of(self._log.state, self._group)

    def is_in(self, plan: GroupPlan) -> bool:
        """Whether a plan has this member."""
        return self.epoch in plan.members and plan.members[self.epoch].id == self.id

    def enter(self, interest: Interest) -> None:
        """Join the group, or change the interest and give up all partitions.

        IllegalStateError while the group has an exclusive member, and when members can't share it,
        for example because their assignors differ.
        """
        self._plan(lambda group, topics: self._entered(group, topics, interest))
        plan = self._log.written_state().group(self._group).plan
        self.epoch = self._epoch_in(plan)
        self._liveness.pace(plan, self.epoch)

    def _epoch_in(self, plan: GroupPlan) -> int:
        """Its epoch, known or not: a plan whose outcome was unknown may have it; 0 without one."""
        return next((epoch for epoch, each in plan.members.items() if each.id == self.id), 0)

    def _entered(self, group: Group, topics: Topics, interest: Interest) -> GroupPlan:
        epoch = self._epoch_in(group.plan)
        if epoch and not self.epoch and group.plan.members[epoch].interest == interest:
            return group.plan  # it came in with a commit of which nobody knew
        if epoch:
            return planning.with_interest(group.plan, epoch, interest, topics)
        self._check_shared(group)
        self.check_not_replaced(group.plan)
        self._take_lock()
        settings = self._settings
        member = PlannedMember(
            id=self.id,
            name=settings.name,
            static=settings.static,
            client=self._client,
            assignor=settings.assignor,
            timeout=settings.timeout,
            interest=interest,
        )
        others = planning.dropped(group.plan, self._gone(group.plan))
        return planning.with_member(others, group.generation + 1, member, topics)

    def _gone(self, plan: GroupPlan) -> list[int]:
        """The members that left or died, as far as a new one needs to know.

        In a large group it doesn't look at all of them: others find the rest.
        """
        gone: list[int] = []
        lives = False
        for looked, (epoch, each) in enumerate(plan.members.items()):
            if lives and looked >= _LOOKED_AT:
                break
            if self._beat_of(each) is None:
                gone.append(epoch)
            else:
                lives = True
        # Where nobody lives nobody needs to wait for those whose names are kept.
        return [epoch for epoch in gone if not (lives and plan.members[epoch].static)]

    def _check_shared(self, group: Group) -> None:
        let_die(self._log, self._group)
        lock = self._log.files.open_lock(paths.member_lock(self._group))
        if lock.is_held():
            raise IllegalStateError(
                f"group {self._group} has a live member already, which reads it alone: "
                f"{group.client} ({lock.holder()}); close it first, or use another group",
                group=self._group,
                holder=lock.holder(),
            )

    def check_not_replaced(self, plan: GroupPlan) -> None:
        """FencedError when a newer member has this static name, which must not be pushed out."""
        name = self._settings.name
        newer = next((m for m in plan.members.values() if m.static and m.name == name), None)
        if self.epoch and self._settings.static and newer is not None:
            raise FencedError(
                f"member {name} of group {self._group} was opened again ({newer.client}); this "
                "one is finished",
                group=self._group,
                name=name,
            )

    def _take_lock(self) -> None:
        """Take a lock with a new name, as others delete the lock of a member that they removed."""
        if self._lock is not None and not self.epoch:
            return  # no other member knows this one yet
        self._drop_lock()
        self.epoch = 0
        self.id = self._log.environment.new_uuid().hex
        lock = _open_member_lock(self._log, self.id, self._settings.timeout)
        lock.try_acquire()
        self._lock = lock

    def _drop_lock(self, *, keep: bool = False) -> None:
        if self._lock is not None:
            self._lock.release()
            if not keep:
                with suppress(OSError):
                    self._lock.discard()
        self._lock = None

    def _plan(self, make: Callable[[Group, Topics], GroupPlan | None]) -> None:
        """Commit the plan that `make` returns, unless it is None or changes nothing.

        When another member was faster, `make` is called again with the new state.
        """
        while True:
            state = self._log.written_state()
            known = state.group(self._group)
            # Other threads of this handle move the known one on at any time. What is read first is
            # the older one: a generation that is older than its plan is refused.
            group = Group(known.generation, client=known.client, plan=known.plan)
            with translated(self._log.files.url):
                plan = make(group, topics_of(state))
            if plan is None or plan == group.plan:
                return
            entry = GroupPlanEntry(self._group, group.generation + 1, plan)
            try:
                self._log.commit([Unit((entry,))])
            except ConflictError:
                continue
            kept = {each.id for each in plan.members.values()}
            discard_locks(self._log, (m for m in group.plan.members.values() if m.id not in kept))
            return

    def renew(self) -> None:
        """Plan again if topics or partitions were added or deleted."""

        def renewed(group: Group, topics: Topics) -> GroupPlan | None:
            done = not self.is_in(group.plan) or planning.is_complete(group.plan, topics)
            return None if done else planning.renewed(group.plan, topics)

        self._plan(renewed)

    def release(self, keys: Iterable[Key], offsets: Sequence[GroupOffsetsEntry]) -> None:
        """Release partitions to the members that wait for them, and commit offsets with it.

        Nothing happens when there is a new plan meanwhile, which the next look will show. Offsets
        that were trimmed away meanwhile are left out.
        """
        entry = GroupReleaseEntry(self._group, self.epoch, tuple(sorted(keys)))
        with suppress(ConflictError, FencedError, NotFoundError):
            while True:
                try:
                    self._log.commit([Unit((*offsets, entry), members=(self.id,))])
                    return
                except OffsetOutOfRangeError:
                    offsets = _inside(self._log.written_state(), offsets)

    def beat(self) -> None:
        """Give a sign of life."""
        lock = self._lock  # another thread may leave meanwhile
        if lock is not None:
            lock.beat()

    def look_around(self) -> None:
        """Remove dead members from the plan."""
        group = self._log.refresh().group(self._group)
        if not self.is_in(group.plan):
            return
        now = self._log.environment.monotonic()
        with translated(self._log.files.url):
            dead = self._liveness.dead(group.plan, self.epoch, self._beat_of, now)
        if dead:
            self._plan_away(dead)

    def _plan_away(self, dead: set[int]) -> None:
        def without_them(group: Group, topics: Topics) -> GroupPlan | None:
            found = dead & set(group.plan.members)
            return planning.without(group.plan, found, topics) if found else None

        self._plan(without_them)

    def step_back(self) -> None:
        """Leave the plan at once, unless no other member lives to take over."""
        group = self._log.refresh().group(self._group)
        if not self.is_in(group.plan):
            return
        others = [each for epoch, each in group.plan.members.items() if epoch != self.epoch]
        with translated(self._log.files.url):
            awaited = any(self._beat_of(each) is not None for each in others)
        if awaited:
            self._plan_away({self.epoch})

    def leave(self) -> None:
        """Leave the group; a static name keeps its partitions until its timeout.

        A second call does nothing, unless the first was interrupted.
        """
        if self._lock is None:
            return
        try:
            if self.epoch and not self._settings.static:
                self.step_back()
        finally:
            self._drop_lock(keep=self._settings.static)

    def _beat_of(self, member: PlannedMember) -> int | None:
        return _open_member_lock(self._log, member.id, member.timeout).last_beat()


def version_of(state: StoreState, group: str) -> Version:
    """What differs when a group changed, or a failed sync may have taken back what it did."""
    return state.group(group).generation, state.losses


def topics_of(state: StoreState) -> Topics:
    """All topics that a group can share."""
    return _as_planned(state.user_topics())


def topics_wanted(state: StoreState, plan: GroupPlan) -> Topics:
    """The topics that a plan's members may want; quick unless a member has a pattern."""
    interests = [each.interest for each in plan.members.values()]
    if any(each.pattern is not None for each in interests):
        return topics_of(state)
    names = {name for each in interests for name in (*each.topics, *(each.chosen or ()))}
    known = (state.find_topic(name) for name in names if queue_of_log(name) is None)
    return _as_planned(topic for topic in known if topic is not None)


def _inside(state: StoreState, entries: Sequence[GroupOffsetsEntry]) -> list[GroupOffsetsEntry]:
    """Return these entries without offsets outside of the log, where they may be after a trim."""
    found = []
    for entry in entries:
        topic = state.topic_by_id(entry.topic_id)
        if topic is not None:
            part = topic.partition
            there = [(n, at) for n, at in entry.offsets if part(n).first <= at <= part(n).end]
            found += [replace(entry, offsets=tuple(there))] if there else []
    return found


def _as_planned(topics: Iterable[Topic]) -> Topics:
    return {topic.name: (topic.id, topic.partitions) for topic in topics}


def _open_member_lock(log: CommitLog, member_id: str, timeout: float) -> Lock:
    """The lock of a member that shares a group."""
    return log.files.open_lock(paths.shared_member_lock(member_id), seconds=timeout)


def discard_locks(log: CommitLog, members: Iterable[PlannedMember]) -> None:
    """Delete the locks of former members."""
    for each in members:
        with suppress(OSError):  # a leftover empty file does no harm
            _open_member_lock(log, each.id, each.timeout).discard()


def let_die(log: CommitLog, group: str) -> None:
    """Wait until the group has no exclusive member, at most as long as an ended query may take."""
    clock = log.environment
    end = clock.monotonic() + _TO_DIE
    with translated(log.files.url):
        lock = log.files.open_lock(paths.member_lock(group))
        while lock.is_held() and clock.monotonic() < end:
            clock.sleep(_TO_DIE_STEP)


def live_members(log: CommitLog, group: Group) -> dict[int, PlannedMember]:
    """The live members that share a group, by epoch."""
    with translated(log.files.url):
        return {
            epoch: each
            for epoch, each in group.plan.members.items()
            if _open_member_lock(log, each.id, each.timeout).is_held()
        }
