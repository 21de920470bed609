"""Plans for the members of a group: who joins, leaves or reads something else, who owns what.

Pure: a plan and what happened in, the next plan out. Whoever notices something plans, and the log
accepts one plan per generation. A partition without a living owner is given at once; one that
moves between two members stays its owner's until that one releases it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from kmq_storage.assignors import ASSIGNORS, Spot
from kmq_storage.errors import IllegalStateError
from kmq_storage.format.group_entries import GroupPlan, Interest, Placement, PlannedMember
from kmq_storage.format.manifest import Key

#: The topics that there are: id and number of partitions, by name.
Topics = Mapping[str, tuple[bytes, int]]


def with_member(plan: GroupPlan, epoch: int, member: PlannedMember, topics: Topics) -> GroupPlan:
    """A member joins; one with a static name takes over from the member of that name.

    IllegalStateError when it chose partitions that another member chose, or another assignor.
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
    """The plan without members, but still with what they owned: to be planned further."""
    members = {epoch: each for epoch, each in plan.members.items() if epoch not in gone}
    return GroupPlan(members, plan.owners, plan.targets)


def without(plan: GroupPlan, gone: Collection[int], topics: Topics) -> GroupPlan:
    """Members left, or died."""
    return renewed(dropped(plan, gone), topics)


def with_interest(plan: GroupPlan, epoch: int, interest: Interest, topics: Topics) -> GroupPlan:
    """A member, which gave up all it had, wants to read something else.

    IllegalStateError when it chose partitions that another member chose.
    """
    member = replace(plan.members[epoch], interest=interest)
    _check([each for e, each in plan.members.items() if e != epoch], member)
    kept = {key: owner for key, owner in plan.owners.items() if owner != epoch}
    before = dict(plan.owners) | dict(plan.targets)
    return _planned({**plan.members, epoch: member}, kept, before, topics)


def renewed(plan: GroupPlan, topics: Topics) -> GroupPlan:
    """Topics or partitions came or went."""
    return _planned(plan.members, plan.owners, plan.targets, topics)


def is_complete(plan: GroupPlan, topics: Topics) -> bool:
    """Whether all partitions that somebody wants to read, and no others, have an owner."""
    wanted = {topic for each in plan.members.values() for topic in _topics_of(each, topics)}
    chosen = {spot for each in plan.members.values() for spot in _chosen(each, topics)}
    keys = {(topics[name][0], n) for name in wanted for n in range(topics[name][1])}
    return keys | {(topics[name][0], n) for name, n in chosen} == set(plan.owners)


def _planned(
    members: Mapping[int, PlannedMember], owners: Placement, before: Placement, topics: Topics
) -> GroupPlan:
    """Who shall own what, and who owns it until then; `before` counts where it has a word."""
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
    """Chosen partitions to those who chose them, the others to those who share them."""
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
    """Static names first, so that a restart changes nothing; then who joined earlier."""
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
    mine = {(t, n) for t, numbers in (member.interest.chosen or {}).items() for n in numbers}
    for other in others:
        if other.assignor != member.assignor:
            raise IllegalStateError(
                f"the members of this group assign by {other.assignor!r} ({other.client}); "
                f"{member.assignor!r} can't join them",
                assignor=other.assignor,
            )
        theirs = {(t, n) for t, numbers in (other.interest.chosen or {}).items() for n in numbers}
        for topic, number in sorted(mine & theirs):
            raise IllegalStateError(
                f"{topic}-{number} was chosen by another member of this group ({other.client}); "
                "two can't read it",
                topic=topic,
                partition=number,
            )
