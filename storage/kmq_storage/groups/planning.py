"""Planning of a group: its members, and the partitions that each of them owns.

All of it is pure: a plan and a change go in, the next plan comes out. Any member that notices a
change plans, and the log accepts one plan per generation. A partition without a live owner is given
to a member at once. A partition that moves stays with its owner until the owner releases it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from kmq_storage.errors import IllegalStateError
from kmq_storage.format.group_entries import GroupPlan, Interest, Placement, PlannedMember
from kmq_storage.format.manifest import Key
from kmq_storage.groups.assignors import ASSIGNORS, Spot

#: All topics by name, with id and number of partitions.
Topics = Mapping[str, tuple[bytes, int]]


def with_member(plan: GroupPlan, epoch: int, member: PlannedMember, topics: Topics) -> GroupPlan:
    """Add a member; with a static name, it replaces the earlier member with this name.

    IllegalStateError when it chose partitions that another member chose, or when its assignor
    differs from that of the others.
    """
    former = next((e for e, each in plan.members.items() if _is_same(each, member)), None)
    others = {e: each for e, each in plan.members.items() if e != former}
    _check(others.values(), member)
    return _planned(
        {**others, epoch: member},
        _renamed(plan.owners, former, epoch),
        _renamed(plan.targets, former, epoch),
        topics,
    )


def dropped(plan: GroupPlan, gone: Collection[int]) -> GroupPlan:
    """The plan without some members, but with their partitions, as input for further planning."""
    members = {epoch: each for epoch, each in plan.members.items() if epoch not in gone}
    return GroupPlan(members, plan.owners, plan.targets)


def without(plan: GroupPlan, gone: Collection[int], topics: Topics) -> GroupPlan:
    """Remove members that left or died."""
    return renewed(dropped(plan, gone), topics)


def with_interest(plan: GroupPlan, epoch: int, interest: Interest, topics: Topics) -> GroupPlan:
    """Change the interest of a member, which has given up what it no longer wants.

    IllegalStateError when it chose partitions that another member chose.
    """
    member = replace(plan.members[epoch], interest=interest)
    _check([each for e, each in plan.members.items() if e != epoch], member)
    wanted = _wanted([member], topics)
    kept = {key: each for key, each in plan.owners.items() if each != epoch or key in wanted}
    before = dict(plan.owners) | dict(plan.targets)
    return _planned({**plan.members, epoch: member}, kept, before, topics)


def renewed(plan: GroupPlan, topics: Topics) -> GroupPlan:
    """Plan again after topics or partitions were added or deleted."""
    return _planned(plan.members, plan.owners, plan.targets, topics)


def is_complete(plan: GroupPlan, topics: Topics) -> bool:
    """Whether exactly those partitions have an owner that a member wants to read."""
    return _wanted(plan.members.values(), topics) == set(plan.owners)


def _wanted(members: Collection[PlannedMember], topics: Topics) -> set[Key]:
    whole = {topic for each in members for topic in _topics_of(each, topics)}
    chosen = {spot for each in members for spot in _chosen(each, topics)}
    keys = {(topics[name][0], n) for name in whole for n in range(topics[name][1])}
    return keys | {(topics[name][0], n) for name, n in chosen}


def _planned(
    members: Mapping[int, PlannedMember], owners: Placement, before: Placement, topics: Topics
) -> GroupPlan:
    """Assign all partitions; those that move get a target, and keep their owner until released.

    The assignor tries to keep the placement of `before`, and else of `owners`.
    """
    names = {topic_id: name for name, (topic_id, _) in topics.items()}
    placed = {
        (names[topic_id], number): epoch
        for (topic_id, number), epoch in {**owners, **before}.items()
        if topic_id in names
    }
    owned: dict[Key, int] = {}
    moving: dict[Key, int] = {}
    for (name, number), target in _assigned(members, placed, topics).items():
        key = (topics[name][0], number)
        owner = owners.get(key)
        owned[key] = target if owner is None or owner not in members else owner
        if owned[key] != target:
            moving[key] = target
    return GroupPlan(dict(members), owned, moving)


def _assigned(
    members: Mapping[int, PlannedMember], placed: Mapping[Spot, int], topics: Topics
) -> dict[Spot, int]:
    """Give chosen partitions to the members that chose them, and assign the others."""
    chosen = {spot: epoch for epoch in members for spot in _chosen(members[epoch], topics)}
    order = sorted(members, key=lambda epoch: _rank(epoch, members[epoch]))
    readers = {epoch: frozenset(_topics_of(members[epoch], topics)) for epoch in order}
    readers = {epoch: wanted for epoch, wanted in readers.items() if wanted}
    if not readers:
        return chosen
    shared = {
        name: [number for number in range(count) if (name, number) not in chosen]
        for name, (_, count) in topics.items()
    }
    assign = ASSIGNORS[members[min(members)].assignor]
    return assign(readers, shared, placed) | chosen


def _rank(epoch: int, member: PlannedMember) -> tuple[bool, str, int]:
    """Sort static names first, so that a restart changes nothing, and others by their joining."""
    return (not member.static, member.name if member.static else "", epoch)


def _topics_of(member: PlannedMember, topics: Topics) -> Iterable[str]:
    interest = member.interest
    if interest.pattern is not None:
        return filter(_compiled(interest.pattern).search, topics)
    return (name for name in interest.topics if name in topics)


def _chosen(member: PlannedMember, topics: Topics) -> Iterable[Spot]:
    for name, numbers in (member.interest.chosen or {}).items():
        if name in topics:
            yield from ((name, number) for number in numbers if number < topics[name][1])


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_same(one: PlannedMember, other: PlannedMember) -> bool:
    return one.static and other.static and one.name == other.name


def _renamed(placement: Placement, former: int | None, epoch: int) -> dict[Key, int]:
    return {key: epoch if owner == former else owner for key, owner in placement.items()}


def _check(others: Iterable[PlannedMember], member: PlannedMember) -> None:
    mine = _asked(member)
    for other in others:
        if other.assignor != member.assignor:
            raise IllegalStateError(
                f"the members of this group assign by {other.assignor!r} ({other.client}); "
                f"{member.assignor!r} can't join them",
                assignor=other.assignor,
            )
        for topic, number in sorted(mine & _asked(other)):
            raise IllegalStateError(
                f"{topic}-{number} was chosen by another member of this group ({other.client}); "
                "two can't read it",
                topic=topic,
                partition=number,
            )


def _asked(member: PlannedMember) -> set[Spot]:
    """The partitions that a member chose by hand, whether they exist or not."""
    chosen = member.interest.chosen or {}
    return {(topic, number) for topic, numbers in chosen.items() for number in numbers}
