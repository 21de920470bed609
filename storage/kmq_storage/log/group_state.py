"""A consumer group as the commits so far made it, and which commits of it are accepted.

Pure. A group is read by one exclusive member (a query of Spark), whose generation is that of the
group, or shared by members as a plan says; then what a member commits names its epoch.

- A generation only grows, and each plan, release and join takes the next one: of two plans that
  were made from the same group the second is refused.
- Members are those of the newest plan, each by its epoch, a generation that was; partitions are
  given to members alone. An exclusive member and a plan are never there at once.
- Only an owner commits offsets of its partition. What nobody owns, any member may commit, and
  generation -1 is nobody: who sets offsets by hand looked for live members before, and a member
  that joins since then goes on from what was set.

These are checked and asserted when a commit is bound; applied is what the log has, for commits
before it may have been cut out as damage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kmq_storage.errors import ConflictError, FencedError, KmqError, NotFoundError
from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry
from kmq_storage.format.group_entries import (
    NO_PLAN,
    GroupPlan,
    GroupPlanEntry,
    GroupReleaseEntry,
)


@dataclass(slots=True)
class Group:
    """A consumer group: its generation and what it committed, by topic id and partition."""

    generation: int = 0
    #: The exclusive member, and the partitions it reads.
    member: str = ""
    client: str = ""
    assignment: Mapping[str, list[int]] = field(default_factory=dict)
    #: When it joined, UTC microseconds.
    joined: int = 0
    offsets: dict[bytes, dict[int, int]] = field(default_factory=dict)
    #: Who shares the group, when it has no exclusive member. Replaced, never changed in place.
    plan: GroupPlan = NO_PLAN

    def apply_member(self, entry: GroupEntry, time: int) -> None:
        """An exclusive member came, in place of everybody, or reads other partitions."""
        if entry.generation != self.generation:
            self.joined = time
            self.plan = NO_PLAN
        self.generation, self.member = entry.generation, entry.member
        self.client, self.assignment = entry.client, entry.assignment

    def apply_plan(self, entry: GroupPlanEntry, time: int) -> None:
        """Members share the group in another way."""
        self.generation = entry.generation
        self.member, self.client, self.assignment, self.joined = "", "", {}, 0
        self.plan = entry.plan.applied(time)

    def apply_release(self, entry: GroupReleaseEntry) -> None:
        """Partitions go from their owner to those that wait for them."""
        owners, targets = dict(self.plan.owners), dict(self.plan.targets)
        for key in entry.partitions:
            owners.pop(key, None)
            if key in targets:
                owners[key] = targets.pop(key)
        self.generation += 1
        self.plan = GroupPlan(self.plan.members, owners, targets)


def check_ownership(group: Group, entry: GroupOffsetsEntry, topic: str) -> None:
    """FencedError when a member commits what is another one's, or is none any more."""
    if entry.generation == -1:
        return
    if not group.plan.members:
        if entry.generation != group.generation:
            raise _lost(group, entry.group, entry.generation, "lost its partitions")
        return
    _check_member(group, entry.group, entry.generation)
    for number, _ in entry.offsets:
        owner = group.plan.owners.get((entry.topic_id, number), entry.generation)
        if owner != entry.generation:
            raise _lost(
                group, entry.group, entry.generation, f"lost {topic}-{number} to another one"
            )


def may_be_below(group: Group, entry: GroupOffsetsEntry) -> bool:
    """Whether what a member commits may lie below the log's start, as it does after a trim anyway.

    An exclusive member says what it has finished: it may be reading an archive there, and who goes
    on from the start instead would pass over what is between.
    """
    return entry.generation != -1 and bool(group.member)


def check_release(group: Group, entry: GroupReleaseEntry) -> None:
    """ConflictError unless all partitions are the member's and shall be another one's."""
    _check_member(group, entry.group, entry.epoch)
    plan = group.plan
    for key in entry.partitions:
        if plan.owners.get(key) != entry.epoch or key not in plan.targets:
            raise ConflictError(
                f"group {entry.group} was planned anew: partition {key[1]} is not to be released",
                group=entry.group,
            )


def check_plan(group: Group, entry: GroupPlanEntry) -> None:
    """ConflictError unless a plan is of the group as it is."""
    if entry.generation != group.generation + 1:
        raise ConflictError(
            f"group {entry.group} is in generation {group.generation} by now, and this plan is "
            f"based on {entry.generation - 1}; plan again",
            group=entry.group,
            generation=entry.generation,
            newer=group.generation,
        )
    members = entry.plan.members
    named = {*entry.plan.owners.values(), *entry.plan.targets.values()}
    assert named <= members.keys(), "partitions are given to members"


def check_member(group: Group | None, entry: GroupEntry) -> None:
    """FencedError when an exclusive member comes too late; NotFoundError for an unknown group."""
    if entry.generation == 0:
        if group is None:
            raise NotFoundError(f"Group[{entry.group}] doesn't exist.", group=entry.group)
        return
    current = group.generation if group else 0
    joins = entry.generation == current + 1
    goes_on = (
        group is not None
        and not group.plan.members
        and (entry.generation, entry.member) == (current, group.member)
    )
    if not (joins or goes_on):
        raise FencedError(
            f"group {entry.group} moved on to generation {current}",
            group=entry.group,
            generation=entry.generation,
            newer=current,
        )


def _check_member(group: Group, name: str, epoch: int) -> None:
    if epoch not in group.plan.members:
        raise _lost(group, name, epoch, "is none any more: it lost its partitions")


def _lost(group: Group, name: str, generation: int, what: str) -> KmqError:
    return FencedError(
        f"group {name} is in generation {group.generation}; this member of generation "
        f"{generation} {what}",
        group=name,
        generation=generation,
        newer=group.generation,
    )
