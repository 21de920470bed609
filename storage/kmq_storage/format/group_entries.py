"""Entries by which the members of a group share its partitions.

A plan names the members, the owner of each partition, and the next owner of those that move. A
release tells that an owner gave partitions up. Both are rare, so they are JSON, with runs of
partitions as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kmq_storage.format.json_bytes import compact_json
from kmq_storage.format.manifest import Key

#: For each partition, the epoch of a member.
Placement: TypeAlias = Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class Interest:
    """What a member wants to read: topics by name or pattern, or partitions chosen by hand."""

    topics: tuple[str, ...] = ()
    #: A regular expression that is searched anywhere in a name.
    pattern: str | None = None
    chosen: Mapping[str, tuple[int, ...]] | None = None

    def to_json(self) -> dict[str, Any]:
        """The interest as a JSON object, without empty members."""
        chosen = {name: list(numbers) for name, numbers in (self.chosen or {}).items()}
        facts = {"topics": list(self.topics), "pattern": self.pattern or "", "chosen": chosen}
        return {name: value for name, value in facts.items() if value}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Interest:
        """The interest from its JSON object."""
        chosen = facts.get("chosen")
        return cls(
            tuple(facts.get("topics", ())),
            facts.get("pattern"),
            chosen and {name: tuple(numbers) for name, numbers in chosen.items()},
        )


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """A member of a group in a plan."""

    #: 32 hex digits, after which its lock is named.
    id: str
    name: str
    #: Whether the user chose the name; the partitions then wait for the next member with it.
    static: bool
    client: str
    assignor: str
    #: A member without a sign of life for this long (seconds) counts as dead.
    timeout: float
    interest: Interest = Interest()
    #: The time of the commit with which it joined (UTC us); 0 in this commit itself.
    joined: int = 0

    def to_json(self) -> dict[str, Any]:
        """The member as a JSON object."""
        return {
            "id": self.id,
            "name": self.name,
            "static": self.static,
            "client": self.client,
            "assignor": self.assignor,
            "timeout": self.timeout,
            "interest": self.interest.to_json(),
            "joined": self.joined,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> PlannedMember:
        """The member from its JSON object."""
        return cls(**{**facts, "interest": Interest.from_json(facts["interest"])})


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The members of a group by their epochs, and the owners of its partitions."""

    #: By epoch, which is the generation in which a member joined.
    members: Mapping[int, PlannedMember] = field(default_factory=dict)
    #: The member that reads a partition and may commit its offsets.
    owners: Placement = field(default_factory=dict)
    #: For partitions that move: the member that gets them once their owner has released them.
    targets: Placement = field(default_factory=dict)

    def owned_by(self, epoch: int) -> list[Key]:
        """The partitions that a member owns, including those that it has to release."""
        return [key for key, owner in self.owners.items() if owner == epoch]

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return {
            "members": {str(epoch): each.to_json() for epoch, each in self.members.items()},
            "owners": _placement_to_json(self.owners),
            "targets": _placement_to_json(self.targets),
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> GroupPlan:
        """The plan from its JSON object."""
        members = facts["members"].items()
        return cls(
            {int(epoch): PlannedMember.from_json(each) for epoch, each in members},
            _placement_from_json(facts["owners"]),
            _placement_from_json(facts["targets"]),
        )

    def applied(self, time: int) -> GroupPlan:
        """The plan after its commit at this time, which is when its new members joined."""
        members = {
            epoch: each if each.joined else replace(each, joined=time)
            for epoch, each in self.members.items()
        }
        return GroupPlan(members, self.owners, self.targets)


#: The plan of a group without sharing members.
NO_PLAN = GroupPlan()


@dataclass(frozen=True, slots=True)
class GroupPlanEntry:
    """A new plan for a group, which replaces the one before."""

    group: str
    #: One above the generation on which it was planned.
    generation: int
    plan: GroupPlan

    kind = 12

    def payload(self) -> bytes:
        """The JSON of this entry in a commit, without its kind."""
        facts = {"group": self.group, "generation": self.generation}
        return compact_json(facts | self.plan.to_json())

    @classmethod
    def parse(cls, payload: bytes) -> GroupPlanEntry:
        """The entry of a JSON form."""
        facts = json.loads(payload)
        return cls(facts["group"], facts["generation"], GroupPlan.from_json(facts))


@dataclass(frozen=True, slots=True)
class GroupReleaseEntry:
    """A member released these partitions: each now belongs to its target."""

    group: str
    epoch: int
    partitions: tuple[Key, ...]

    kind = 13

    def payload(self) -> bytes:
        """The JSON of this entry in a commit, without its kind."""
        return compact_json(
            {"group": self.group, "epoch": self.epoch, "partitions": _runs_of(self.partitions)}
        )

    @classmethod
    def parse(cls, payload: bytes) -> GroupReleaseEntry:
        """The entry of a JSON form."""
        facts = json.loads(payload)
        return cls(facts["group"], facts["epoch"], tuple(_keys_of(facts["partitions"])))


def _placement_to_json(placement: Placement) -> dict[str, dict[str, str]]:
    by_epoch: dict[str, list[Key]] = {}
    for key, epoch in placement.items():
        by_epoch.setdefault(str(epoch), []).append(key)
    return {epoch: _runs_of(keys) for epoch, keys in by_epoch.items()}


def _placement_from_json(facts: Mapping[str, Mapping[str, str]]) -> dict[Key, int]:
    return {key: int(epoch) for epoch, runs in facts.items() for key in _keys_of(runs)}


def _runs_of(keys: Iterable[Key]) -> dict[str, str]:
    """Partitions by topic, as text: `0-3,7`."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(keys):
        by_topic.setdefault(topic_id, []).append(number)
    return {topic_id.hex(): _runs(numbers) for topic_id, numbers in by_topic.items()}


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def _keys_of(by_topic: Mapping[str, str]) -> list[Key]:
    keys: list[Key] = []
    for topic_id, runs in by_topic.items():
        for run in runs.split(","):
            first, _, last = run.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            keys += [(bytes.fromhex(topic_id), number) for number in numbers]
    return keys
