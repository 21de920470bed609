"""The state of a store as a JSON object in a checkpoint's root, written and read back.

Rows of partitions are in the pages of the manifest instead.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from kmq_storage import limits
from kmq_storage.errors import FormatVersionError
from kmq_storage.format.group_entries import NO_PLAN, GroupPlan
from kmq_storage.log.index.manifest import Manifest
from kmq_storage.log.index.offset_index import Gap
from kmq_storage.log.state.gone_topics import GoneTopic, GoneTopics
from kmq_storage.log.state.group_state import Group, Groups
from kmq_storage.log.state.producers import ProducerState
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_settings import settings_of
from kmq_storage.log.state.topic_state import Partition, Topic

#: The members that a checkpoint may have. A version must refuse others, since its own next
#: checkpoint would not have them.
_MEMBERS = frozenset(
    (
        *("lsn", "definitions", "written", "condemned", "topics", "groups", "producers"),
        *("batches", "gone", "queues", "generations"),
    )
)
_OF_TOPICS = frozenset(
    ("id", "name", "settings", "columns", "partitions", "tombstones", "begun", "turns")
)
_OF_GROUPS = frozenset(
    ("generation", "member", "client", "assignment", "joined", "offsets", "plan")
)
_PARTS = frozenset(("queues", "uniqs"))


def check_known(members: Mapping[str, Any], parts: Iterable[str]) -> None:
    """FormatVersionError when a checkpoint has members that this version doesn't know."""
    unknown = {*members} - _MEMBERS | {*parts} - _PARTS
    unknown |= {name for topic in members["topics"] for name in topic} - _OF_TOPICS
    unknown |= {name for group in members["groups"].values() for name in group} - _OF_GROUPS
    if unknown:
        raise FormatVersionError(
            f"the checkpoint of commit {members['lsn']} tells of {', '.join(sorted(unknown))}, "
            "which this version of kmq does not know; read the store with a newer kmq",
            lsn=members["lsn"],
        )


def snapshot(state: StoreState) -> dict[str, Any]:
    """A reader's state, which must be free of damage, as a JSON object."""
    assert not state.damage, "damage is in no checkpoint"
    # Only where a group was deleted, so that other stores stay readable by older versions.
    deleted = {"generations": state.groups.above} if state.groups.above else {}
    return {
        "lsn": state.lsn,
        "definitions": state.definitions,
        "written": [state.appended, state.rewritten],
        "condemned": state.condemned,
        "topics": [_topic(topic) for topic in state.topics.values()],
        "groups": {name: _group(group) for name, group in state.groups.items()},
        "producers": [
            [name, p.epoch, p.sequence, p.lsn]
            for name, p in sorted(state.producers.items(), key=lambda each: each[1].lsn)
        ],
        "batches": [[name, version, lsn] for name, (version, lsn) in state.batches.items()],
        "gone": [topic.to_json() for topic in state.gone],
        **deleted,
    }


def _topic(topic: Topic) -> dict[str, Any]:
    members = {
        "id": topic.id.hex(),
        "name": topic.name,
        "settings": topic.settings.to_json(),
        "columns": topic.columns,
        "partitions": [_partition(part) for part in topic.parts],
    }
    waiting = [[number, part.tombstones] for number, part in enumerate(topic.parts)]
    optional = {
        "tombstones": [each for each in waiting if each[1]],
        "begun": [n for n, part in enumerate(topic.parts) if part.is_begun and not part.start],
        "turns": list(map(list, topic.turns.items())),
    }
    return members | {name: some for name, some in optional.items() if some}


def _partition(part: Partition) -> list[Any]:
    assert part.index is not None, "a reader's state knows where records are"
    gaps = [_gap(gap) for gap in part.index.gaps]
    return [part.start, part.end, part.rows, part.size, part.layout_lsn, gaps]


def _gap(gap: Gap) -> list[Any]:
    lost = [] if gap.lost is None else [b64encode(gap.lost).decode()]
    return [gap.start, gap.end, gap.reason, *lost]


def _group(group: Group) -> dict[str, Any]:
    offsets = {
        topic_id.hex(): list(by_partition.items())
        for topic_id, by_partition in group.offsets.items()
    }
    plan = {} if group.plan is NO_PLAN else {"plan": group.plan.to_json()}
    return {
        "generation": group.generation,
        "member": group.member,
        "client": group.client,
        "assignment": dict(group.assignment),
        "joined": group.joined,
        "offsets": offsets,
        **plan,
    }


def restored(members: dict[str, Any], manifest: Manifest | None) -> StoreState:
    """The state of a snapshot; with a manifest, a reader's state."""
    state = StoreState(manifest)
    state.lsn, state.definitions = members["lsn"], members["definitions"]
    state.checkpoint_lsn = state.lsn
    state.rebase_at = state.lsn + limits.REBASE_COMMITS
    state.appended, state.rewritten = members["written"]
    state.condemned = members.get("condemned", 0)
    for topic in members["topics"]:
        state.add_topic(_restored_topic(topic, manifest))
    groups = {name: _restored_group(group) for name, group in members["groups"].items()}
    state.groups = Groups(groups, above=members.get("generations", 0))
    for name, *facts in members["producers"]:
        state.producers.note(name, ProducerState(*facts))
    state.batches = {name: (version, lsn) for name, version, lsn in _batches(members["batches"])}
    state.gone = GoneTopics(tuple(map(GoneTopic.from_json, members.get("gone", []))))
    return state


def _batches(found: list[Any] | dict[str, Any]) -> list[Any]:
    """The last batch of each application; the oldest checkpoints had a mapping here."""
    if isinstance(found, list):
        return found
    return sorted(([name, *facts] for name, facts in found.items()), key=lambda each: each[2])


def _restored_topic(members: dict[str, Any], manifest: Manifest | None) -> Topic:
    topic = Topic(bytes.fromhex(members["id"]), members["name"], manifest)
    topic.settings = settings_of(members["name"], members["settings"])
    topic.columns = members.get("columns", 0)
    topic.enlarge(len(members["partitions"]))
    for part, facts in zip(topic.parts, members["partitions"], strict=True):
        part.start, part.end, part.rows, part.size, part.layout_lsn, gaps = facts
        part.is_begun = topic.settings.trims and part.start > 0
        if part.index is not None:
            part.index.gaps = [_restored_gap(*gap) for gap in gaps]
    for number in members.get("begun", ()):
        topic.parts[number].is_begun = True
    for number, second in members.get("tombstones", ()):
        topic.parts[number].tombstones = second
    topic.turns = dict(map(tuple, members.get("turns", ())))
    return topic


def _restored_gap(start: int, end: int, reason: str, lost: str | None = None) -> Gap:
    return Gap(start, end, reason, None if lost is None else b64decode(lost))


def _restored_group(members: dict[str, Any]) -> Group:
    offsets = {
        bytes.fromhex(topic_id): dict(map(tuple, pairs))
        for topic_id, pairs in members["offsets"].items()
    }
    plan = GroupPlan.from_json(members["plan"]) if "plan" in members else NO_PLAN
    return Group(**members | {"offsets": offsets, "plan": plan})
