"""The members of a group under random calls, against what each of them believes.

Finds: two who read one partition, a commit of who lost it, a hand-over before the last commit of
the old owner, a plan that overrules one it never saw, a release that an older plan asked for, and
partitions that nobody gets. `test_group_mutants` plants such mistakes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kmq_storage.errors import ConflictError, FencedError
from kmq_storage.format.entries import Entry, GroupOffsetsEntry, TopicEntry
from kmq_storage.format.group_entries import (
    GroupPlan,
    GroupPlanEntry,
    GroupReleaseEntry,
    Interest,
    PlannedMember,
)
from kmq_storage.format.manifest import Key
from kmq_storage.groups import planning
from kmq_storage.groups.membership import topics_of
from kmq_storage.log.binding.binding import RefusedError, Unit, bind
from kmq_storage.log.state.group_state import Group
from kmq_storage.log.state.store_state import StoreState

RECORDS = 1_000
#: What members do by what they saw.
CALLS = ["_release", "_change_interest", "_leave", "_stall", "_release", "_renew", "_plan_away"]
INTERESTS = [Interest(("a",)), Interest(("a", "b")), Interest(pattern="b|c"), Interest(pattern="")]


@dataclass
class Member:
    """One process: what it knows, and what it believes it reads."""

    member: PlannedMember
    epoch: int = 0
    alive: bool = True
    generation: int = 0
    plan: GroupPlan = field(default_factory=GroupPlan)
    #: How many plans and releases there were when it looked last.
    seen: int = 0
    #: The next offset of each partition that it reads.
    positions: dict[Key, int] = field(default_factory=dict)

    @property
    def has_to_release(self) -> bool:
        """Whether it knows of a partition that it shall give away."""
        return any(self.plan.owners[key] == self.epoch for key in self.plan.targets)


def _is_in(interest: Interest, topic: str) -> bool:
    pattern = interest.pattern
    return topic in interest.topics or (pattern is not None and bool(re.search(pattern, topic)))


class GroupModel(RuleBasedStateMachine):
    """Members that look at the log now and then, and the log that judges them."""

    assignor = "sticky"

    def __init__(self) -> None:
        super().__init__()
        self.state = StoreState()
        self.members: list[Member] = []
        self.committed: dict[Key, int] = {}
        #: How many plans and releases there were.
        self.changes = 0
        #: A topic that is made again has another id.
        self.ids = {name: name.encode() * 16 for name in "abc"}
        self._define("a", 3)
        self._define("b", 2)

    def _define(self, name: str, partitions: int) -> None:
        self._commit(TopicEntry(self.ids[name], name, partitions, {}))
        for part in self.state.topics[name].parts:
            part.end = RECORDS

    def _commit(self, *entries: Entry) -> bool:
        """Whether the log accepted it."""
        try:
            bound = bind(self.state, [Unit(entries)])
        except RefusedError as refused:
            if not isinstance(refused.cause, ConflictError | FencedError):
                raise
            return False
        self.state.apply(self.state.lsn + 1, self.state.lsn + 1, bound)
        return True

    @property
    def group(self) -> Group:
        return self.state.groups.get("g") or Group()

    def _planned(self, member: Member, plan: GroupPlan) -> bool:
        accepted = self._commit(GroupPlanEntry("g", member.generation + 1, plan))
        assert accepted == (member.seen == self.changes), "it saw what it overrules"
        self.changes += accepted
        return accepted

    def _one(self, data: st.DataObject, *, alive: bool = True) -> Member | None:
        found = [each for each in self.members if each.alive or not alive]
        return data.draw(st.sampled_from(found)) if found else None

    # --- what members do ----------------------------------------------------------------

    @rule(interest=st.sampled_from(INTERESTS), name=st.sampled_from(["", "", "x", "y"]))
    def join(self, interest: Interest, name: str) -> None:
        self._enter(interest, name)

    def _enter(self, interest: Interest, name: str = "") -> None:
        number = len(self.members)
        planned = PlannedMember(
            f"{number:032x}", name or f"m{number}", bool(name), "c", self.assignor, 1.0, interest
        )
        epoch = self.group.generation + 1
        new = Member(planned, epoch, generation=self.group.generation, seen=self.changes)
        plan = planning.with_member(self.group.plan, epoch, planned, topics_of(self.state))
        assert self._planned(new, plan)
        self.members.append(new)

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        member = self._one(data)
        if member:
            self._look(member)

    def _look(self, member: Member) -> None:
        """See the group as it is: stop reading what is not one's own, begin with what is."""
        member.generation, member.plan = self.group.generation, self.group.plan
        member.seen = self.changes
        if member.epoch not in member.plan.members:
            member.alive = False  # it would join again, as another one
            return
        there = {topic.id for topic in self.state.topics.values()}
        owned = {key for key in member.plan.owned_by(member.epoch) if key[0] in there}
        mine = owned - set(member.plan.targets)
        kept = owned & set(member.positions)
        for key in set(member.positions) - kept:
            del member.positions[key]
        for key in mine - set(member.positions):
            member.positions[key] = self.committed.get(key, 0)

    @rule(data=st.data(), count=st.integers(1, 20))
    def read(self, data: st.DataObject, count: int) -> None:
        member = self._one(data)
        for key in member.positions if member else ():
            member.positions[key] = min(member.positions[key] + count, RECORDS)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Also of those who are taken for dead, and don't know it."""
        member = self._one(data, alive=False)
        if member and member.positions:
            key = data.draw(st.sampled_from(sorted(member.positions)))
            self._commit_offset(member, key)

    def _offsets(self, member: Member, key: Key) -> GroupOffsetsEntry:
        return GroupOffsetsEntry("g", member.epoch, key[0], ((key[1], member.positions[key]),))

    def _commit_offset(self, member: Member, key: Key) -> None:
        owner = self.group.plan.owners.get(key, member.epoch)
        rightful = owner == member.epoch and member.epoch in self.group.plan.members
        assert self._commit(self._offsets(member, key)) == rightful
        if rightful:
            self._note(member, key)

    def _note(self, member: Member, key: Key) -> None:
        assert member.positions[key] >= self.committed.get(key, 0), "a commit went back"
        self.committed[key] = member.positions[key]

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        member = self._one(data)
        if member:
            self._release(member)

    def _release(self, member: Member) -> None:
        """As it knows the plan: all that shall move, with the offsets, in one commit."""
        keys = [key for key in member.plan.owned_by(member.epoch) if key in member.plan.targets]
        read = [key for key in keys if key in member.positions]
        if not keys:
            return
        entries: list[Entry] = [self._offsets(member, key) for key in read]
        plan = self.group.plan
        is_asked = member.epoch in plan.members and all(
            plan.owners.get(key) == member.epoch and key in plan.targets for key in keys
        )
        accepted = self._commit(*entries, GroupReleaseEntry("g", member.epoch, tuple(keys)))
        assert accepted == is_asked
        self.changes += accepted
        if accepted:
            assert all(self.group.plan.owners[key] == plan.targets[key] for key in keys)
            for key in read:
                self._note(member, key)
        for key in read:
            del member.positions[key]

    @rule(data=st.data(), interest=st.sampled_from(INTERESTS))
    def change_interest(self, data: st.DataObject, interest: Interest) -> None:
        member = self._one(data)
        if member:
            self._change_interest(member, interest)

    def _change_interest(self, member: Member, interest: Interest) -> None:
        if member.epoch in member.plan.members:
            topics = topics_of(self.state)
            named = {topics[name][0] for name in topics if _is_in(interest, name)}
            kept = {key: at for key, at in member.positions.items() if key[0] in named}
            member.positions = kept
            plan = planning.with_interest(member.plan, member.epoch, interest, topics)
            assert set(kept) <= set(plan.owned_by(member.epoch)), "what it still names has moved"
            self._planned(member, plan)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = self._one(data)
        if member:
            self._leave(member)

    def _leave(self, member: Member) -> None:
        if member.epoch in member.plan.members:
            plan = planning.without(member.plan, {member.epoch}, topics_of(self.state))
            if self._planned(member, plan):
                member.alive = False
                member.positions.clear()

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        member = self._one(data)
        if member:
            member.alive = False  # its positions stay: it may only have been stopped

    @rule(data=st.data())
    def plan_away(self, data: st.DataObject) -> None:
        member = self._one(data)
        if member:
            self._plan_away(member)

    def _plan_away(self, member: Member) -> None:
        """Those whom it finds dead, of those it knows."""
        lives = {each.epoch for each in self.members if each.alive}
        gone = {epoch for epoch in member.plan.members if epoch not in lives}
        if gone:
            self._planned(member, planning.without(member.plan, gone, topics_of(self.state)))

    @precondition(lambda self: self.state.topics["a"].partitions < 6)
    @rule()
    def add_partition(self) -> None:
        self._define("a", self.state.topics["a"].partitions + 1)

    @rule()
    def make_or_delete_topic(self) -> None:
        if "c" in self.state.topics:
            gone = self.ids["c"]
            self._commit(TopicEntry(gone, "c", 0, {}))
            self.ids["c"] = (int.from_bytes(gone) + 1).to_bytes(16)
            self.committed = {k: at for k, at in self.committed.items() if k[0] != gone}
            for member in self.members:  # its records are gone, too
                member.positions = {k: at for k, at in member.positions.items() if k[0] != gone}
        else:
            self._define("c", 2)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        member = self._one(data)
        if member:
            self._renew(member)

    def _renew(self, member: Member) -> None:
        topics = topics_of(self.state)
        if not planning.is_complete(member.plan, topics):
            self._planned(member, planning.renewed(member.plan, topics))

    @precondition(lambda self: sum(each.alive for each in self.members) > 1)
    @rule(data=st.data(), calls=st.lists(st.sampled_from(CALLS), min_size=2, max_size=4))
    def race(self, data: st.DataObject, calls: list[str]) -> None:
        """All look at one time; then some act, of whom the later ones know nothing of that."""
        if not self.group.plan.targets:
            self._enter(INTERESTS[1])
        for member in self.members:
            if member.alive:
                self._look(member)
        for call in calls:
            able = [each for each in self.members if each.alive]
            if call == "_release":
                able = [each for each in able if each.has_to_release]
            member = data.draw(st.sampled_from(able)) if able else None
            if member and call == "_change_interest":
                self._change_interest(member, data.draw(st.sampled_from(INTERESTS)))
            elif member:
                getattr(self, call)(member)
            self.members_read_only_what_is_theirs()

    def _stall(self, member: Member) -> None:
        """It is taken for dead by the next one, and goes on without knowing it."""
        others = [each for each in self.members if each.alive and each is not member]
        if others:
            member.alive = False
            self._look(others[0])
            self._plan_away(others[0])
            for key in sorted(member.positions):
                self._commit_offset(member, key)
            self._release(member)

    # --- what must hold -----------------------------------------------------------------

    @invariant()
    def members_read_only_what_is_theirs(self) -> None:
        """Then no two of them read one partition: it has one owner."""
        plan = self.group.plan
        for member in self.members:
            if member.epoch in plan.members:
                assert set(member.positions) <= set(plan.owned_by(member.epoch))

    @invariant()
    def owners_and_targets_are_members(self) -> None:
        plan = self.group.plan
        assert set(plan.owners.values()) | set(plan.targets.values()) <= set(plan.members)
        assert set(plan.targets) <= set(plan.owners)
        assert all(plan.owners[key] != target for key, target in plan.targets.items())

    @invariant()
    def names_are_there_once(self) -> None:
        names = [each.name for each in self.group.plan.members.values() if each.static]
        assert len(names) == len(set(names))

    def teardown(self) -> None:
        """When those who live look, plan and release in turns, all is read by one each."""
        for _ in range(4):
            for member in [each for each in self.members if each.alive]:
                self._look(member)
                if member.alive:
                    self._plan_away(member)
                    self._look(member)
                    self._renew(member)
                    self._look(member)
                    self._release(member)
        for member in self.members:
            if member.alive:
                self._look(member)
        alive = {each.epoch: each for each in self.members if each.alive}
        plan = self.group.plan
        if not alive:
            return
        assert set(plan.members) == set(alive)
        assert not plan.targets
        assert planning.is_complete(plan, topics_of(self.state))
        for key, owner in plan.owners.items():
            assert key in alive[owner].positions


class RangeModel(GroupModel):
    """The same with partitions that move more often."""

    assignor = "range"


TestSticky = GroupModel.TestCase
TestSticky.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRange = RangeModel.TestCase
TestRange.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
