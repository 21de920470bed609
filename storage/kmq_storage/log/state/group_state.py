"""The state of a consumer group, and the rules for its commits.

All of it is pure. A group has either one exclusive member (such as a Spark query), which commits
with the group's generation, or members that share it by a plan, which commit with their epochs.

- **Generations only grow.** Each plan, release and join takes the next one. So of two plans that
  were made from the same state, the second is refused. A group that is made begins above all that
  were deleted, so that nobody who knew one of its name has a generation of the new one.
- **Members** are those of the newest plan. Each is named by its epoch, an earlier generation.
  Partitions are given only to members. A group never has an exclusive member and a plan at once.
- **Offsets** of a partition are committed only by its owner, or by any member if it has no owner.
  Generation -1 stands for an administrator, who has checked that there are no live members. A
  member that joins later goes on from the offsets that were set.

These rules are checked when a commit is bound. A commit in the log is applied without a check,
because commits before it may have been cut out as damage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kmq_storage.errors import ConflictError, FencedError, KmqError, NotFoundError
from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry
from kmq_storage.format.group_entries import NO_PLAN, GroupPlan, GroupPlanEntry, GroupReleaseEntry


@dataclass(slots=True)
class Group:
    """A consumer group: its generation, members and committed offsets."""

    generation: int = 0
    #: The exclusive member, and the partitions that it reads.
    member: str = ""
    client: str = ""
    assignment: Mapping[str, list[int]] = field(default_factory=dict)
    #: When the exclusive member joined, UTC microseconds.
    joined: int = 0
    #: The committed offsets, by topic id and partition.
    offsets: dict[bytes, dict[int, int]] = field(default_factory=dict)
    #: The members that share the group, if it has no exclusive one. It is replaced, never changed.
    plan: GroupPlan = NO_PLAN

    def apply_member(self, entry: GroupEntry, time: int) -> None:
        """An exclusive member joined in place of all others, or reads other partitions."""
        if entry.generation != self.generation:
            self.joined = time
            self.plan = NO_PLAN
        self.generation, self.member = entry.generation, entry.member
        self.client, self.assignment = entry.client, entry.assignment

    def apply_plan(self, entry: GroupPlanEntry, time: int) -> None:
        """A new plan tells how members share the group."""
        self.member, self.client, self.assignment, self.joined = "", "", {}, 0
        self.plan = entry.plan.applied(time)
        self.generation = entry.generation  # last: other threads read it before the plan

    def apply_release(self, entry: GroupReleaseEntry) -> None:
        """An owner released partitions; they go to the members that wait for them."""
        owners, targets = dict(self.plan.owners), dict(self.plan.targets)
        for key in entry.partitions:
            owners.pop(key, None)
            if key in targets:
                owners[key] = targets.pop(key)
        self.plan = GroupPlan(self.plan.members, owners, targets)
        self.generation += 1  # last: other threads read it before the plan


class Groups(dict[str, Group]):
    """The groups by name."""

    def __init__(self, groups: Mapping[str, Group] | None = None, *, above: int = 0) -> None:
        super().__init__(groups or {})
        #: The generations of all that were deleted are below this one.
        self.above = above

    def find(self, name: str) -> Group:
        """Return the group of this name; an unknown one as it would begin."""
        return self.get(name) or Group(self.above)

    def made(self, name: str) -> Group:
        """Return the group of this name, which exists from now on."""
        return self.setdefault(name, self.find(name))

    def delete(self, name: str) -> None:
        """Forget a group."""
        self.above = max(self.above, self.find(name).generation + 1)
        self.pop(name, None)


@dataclass(slots=True, eq=False)
class Ownership:
    """A member's time with a partition: what was noted in it is committed in it or not at all.

    Only the member itself can end it and stay in the group. It says so here before it gives the
    partition away, so binding knows it whenever the log does; an owner of before, to whom the
    partition came back, has the same epoch in the log.
    """

    group: str
    topic: str
    partition: int
    topic_id: bytes
    #: The offset that the member committed last in it, the next to read; -1 before.
    committed: int = -1
    is_over: bool = False

    def check(self) -> None:
        """FencedError when the partition was given away."""
        if self.is_over:
            raise FencedError(
                f"{self.topic}-{self.partition} was given away in group {self.group} since these "
                "offsets were noted: records of it come again",
                group=self.group,
                topic=self.topic,
                partition=self.partition,
            )


def check_ownership(
    group: Group, entry: GroupOffsetsEntry, topic: str, ids: Collection[str] = ()
) -> None:
    """FencedError when a member commits offsets that it does not own, or is no member any more.

    `ids`: of members that commit, as far as they are known.
    """
    if entry.generation == -1:
        return
    if not group.plan.members:
        if any(ids) or entry.generation != group.generation:
            raise _lost(group, entry.group, entry.generation, "lost its partitions")
        return
    _check_member(group, entry.group, entry.generation, ids)
    for number, _ in entry.offsets:
        owner = group.plan.owners.get((entry.topic_id, number), entry.generation)
        if owner != entry.generation:
            raise _lost(
                group, entry.group, entry.generation, f"lost {topic}-{number} to another one"
            )


def check_forward(group: Group, entry: GroupOffsetsEntry, topic: str) -> None:
    """ConflictError when a group would go back."""
    known = group.offsets.get(entry.topic_id, {})
    for number, offset in entry.offsets:
        if offset < known.get(number, 0):
            raise ConflictError(
                f"group {entry.group} is at {known[number]} of {topic}-{number} already, which is "
                f"beyond {offset}",
                group=entry.group,
            )


def may_be_below(group: Group, entry: GroupOffsetsEntry) -> bool:
    """Whether a member may commit offsets below a partition's start.

    An exclusive member may: it commits what it has finished, perhaps from an archive of trimmed
    records. If it had to commit the start instead, records between would be skipped.
    """
    return entry.generation != -1 and bool(group.member)


def check_release(group: Group, entry: GroupReleaseEntry, ids: Collection[str] = ()) -> None:
    """ConflictError unless the member owns all partitions and the plan has a target for each."""
    _check_member(group, entry.group, entry.epoch, ids)
    plan = group.plan
    for key in entry.partitions:
        if plan.owners.get(key) != entry.epoch or key not in plan.targets:
            raise ConflictError(
                f"group {entry.group} was planned anew: partition {key[1]} is not to be released",
                group=entry.group,
            )


def check_plan(group: Group, entry: GroupPlanEntry) -> None:
    """ConflictError unless a plan was made from the group's current state."""
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


def check_member(groups: Groups, entry: GroupEntry) -> None:
    """FencedError for a superseded exclusive member; NotFoundError to delete an unknown group."""
    if entry.generation == 0:
        if entry.group not in groups:
            raise NotFoundError(f"Group[{entry.group}] doesn't exist.", group=entry.group)
        return
    group = groups.find(entry.group)
    current = group.generation
    joins = entry.generation == current + 1
    goes_on = (
        entry.group in groups
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


def _check_member(group: Group, name: str, epoch: int, ids: Collection[str]) -> None:
    member = group.plan.members.get(epoch)
    if member is None or (ids and member.id not in ids):
        raise _lost(group, name, epoch, "is none any more: it lost its partitions")


def _lost(group: Group, name: str, generation: int, what: str) -> KmqError:
    return FencedError(
        f"group {name} is in generation {group.generation}; this member of generation "
        f"{generation} {what}",
        group=name,
        generation=generation,
        newer=group.generation,
    )
