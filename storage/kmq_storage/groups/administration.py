"""Administration of consumer groups: their offsets, their live members, and their lag."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

from kmq_storage.errors import FencedError, IllegalStateError
from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry
from kmq_storage.groups.exclusive import has_exclusive_member
from kmq_storage.groups.membership import discard_locks, let_die, live_members
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.group_state import Group
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic, out_of_range
from kmq_storage.model import GroupInfo, MemberInfo, to_datetime
from kmq_storage.names import check_name

Offsets = Mapping[str, Mapping[int, int]]
_Fact = TypeVar("_Fact")

#: The most members that an error names.
_TOLD = 3


def offset_entries(
    state: StoreState, group: str, offsets: Offsets, *, generation: int = -1
) -> tuple[GroupOffsetsEntry, ...]:
    """The entries that commit these offsets; NotFoundError for an unknown topic or partition."""
    entries = []
    for name, by_partition in offsets.items():
        topic = state.topic(name)
        for number in by_partition:
            topic.partition(number)
        pairs = tuple(sorted(by_partition.items()))
        entries.append(GroupOffsetsEntry(group, generation, topic.id, pairs))
    return tuple(entry for entry in entries if entry.offsets)


def has_live_member(log: CommitLog, group: str) -> bool:
    """Whether the group has a live member."""
    known = log.refresh().group(group)
    return has_exclusive_member(log, group) or bool(live_members(log, known))


def check_idle(log: CommitLog, group: str) -> None:
    """IllegalStateError while the group has a live member."""
    let_die(log, group)
    if has_live_member(log, group):
        known = log.state.groups.get(group)
        members = [] if known is None else members_in(log.state, log, group, known)
        told = "; ".join(f"{each.name} of {each.client}" for each in members[:_TOLD])
        raise IllegalStateError(
            f"group {group} has a live member{told and f' ({told})'}; close it before changing the "
            "group",
            group=group,
        )


def set_group_offsets(log: CommitLog, group: str, offsets: Offsets) -> None:
    """Set a group's offsets; a new group is created.

    IllegalStateError while it has a live member, OffsetOutOfRangeError for an offset outside of its
    partition.
    """
    check_name("group", group)
    is_set = False
    while not is_set:
        known = log.written_state().group(group)
        former, dismissal = known.plan.members, _dismissal(log, known, group)
        check_idle(log, group)
        entries = offset_entries(log.refresh(), group, offsets)
        with suppress(FencedError):  # a member joined meanwhile: look again
            if entries:
                log.commit([Unit((*entries, *dismissal))])
                discard_locks(log, former.values() if dismissal else ())
            is_set = True


def _dismissal(log: CommitLog, known: Group, name: str) -> tuple[GroupEntry, ...]:
    """Begin a generation without members, if a former one might undo what is being set.

    Spark's listeners hear of a query's last batch after its end. Members in a bucket that show no
    sign of life may have been stopped; on a disk, who is stopped keeps its lock.
    """
    may_come_back = known.member or (log.is_remote and known.plan.members)
    return (GroupEntry(name, known.generation + 1, "", "", {}),) if may_come_back else ()


def copy_group(log: CommitLog, source: str, target: str) -> None:
    """Set a group's offsets to those of another group."""
    state = log.refresh()
    _known(state, source)
    set_group_offsets(log, target, committed_offsets(state, source))


def delete_group(log: CommitLog, group: str) -> None:
    """Delete a group and its offsets."""
    check_idle(log, group)
    known = log.state.group(group)
    log.commit([Unit((GroupEntry(group, 0, "", "", {}),))])
    discard_locks(log, known.plan.members.values())


def _known(state: StoreState, group: str) -> Group:
    found = state.groups.get(group)
    if found is None:
        raise state.missing("Group", group)
    return found


def committed_offsets(state: StoreState, group: str) -> dict[str, dict[int, int]]:
    """The offsets that a group committed, by topic name and partition."""
    return {topic.name: offsets for topic, offsets in _committed(state, state.group(group))}


def _committed(state: StoreState, group: Group) -> Iterator[tuple[Topic, dict[int, int]]]:
    for topic_id, offsets in list(group.offsets.items()):
        topic = state.topic_by_id(topic_id)
        if topic is not None:
            yield topic, dict(sorted(offsets.items()))


def describe_group(log: CommitLog, name: str) -> GroupInfo:
    """The current facts of a group; NotFoundError when no member ever joined or committed."""
    state = log.refresh()
    return describe_in(state, log, name, _known(state, name))


def describe_in(state: StoreState, log: CommitLog, name: str, group: Group) -> GroupInfo:
    """The facts of a group in a state of this log; it may have been deleted meanwhile.

    Topics that members read count before the first commit, too: a group that is stuck there is
    behind. What has no committed offset counts from the start of the log.
    """
    committed = {topic.name: offsets for topic, offsets in _committed(state, group)}
    topics = {topic.name: topic for topic in _topics_read(state, group)}
    positions = {
        name: {
            n: part.readable_from(committed.get(name, {}).get(n, part.first))
            for n, part in enumerate(topic.parts)
        }
        for name, topic in topics.items()
    }
    now = log.environment.now_us()

    def each(fact: Callable[[Topic, int, int], _Fact]) -> dict[str, dict[int, _Fact]]:
        return {
            name: {n: fact(topic, n, at) for n, at in positions[name].items()}
            for name, topic in topics.items()
        }

    return GroupInfo(
        name=name,
        generation=group.generation,
        members=members_in(state, log, name, group),
        committed=committed,
        end=each(lambda topic, n, _: topic.partition(n).end),
        lag=each(lambda topic, n, at: topic.partition(n).lag(at)),
        lag_bytes=each(_size_from),
        lag_seconds=each(lambda topic, n, at: _age_of(topic, n, at, now)),
    )


def _topics_read(state: StoreState, group: Group) -> Iterator[Topic]:
    """The topics that a group committed offsets of, then those that its last plan gives to members.

    The last member of all stays in the plan, so that a group doesn't look done between a crash and
    the restart.
    """
    planned = sorted({topic_id for topic_id, _ in group.plan.owners})
    for topic_id in dict.fromkeys([*group.offsets, *planned]):
        topic = state.topic_by_id(topic_id)
        if topic is not None:
            yield topic


def members_in(state: StoreState, log: CommitLog, name: str, group: Group) -> list[MemberInfo]:
    """The live members of a group in a state of this log."""
    if has_exclusive_member(log, name) and not group.plan.members:
        joined = to_datetime(group.joined)
        return [MemberInfo(group.member, group.client, group.assignment, joined, group.generation)]
    return [
        MemberInfo(
            each.name, each.client, _owned(state, group, epoch), to_datetime(each.joined), epoch
        )
        for epoch, each in live_members(log, group).items()
    ]


def _owned(state: StoreState, group: Group, epoch: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic_id, number in sorted(group.plan.owned_by(epoch)):
        topic = state.topic_by_id(topic_id)
        if topic is not None:
            found.setdefault(topic.name, []).append(number)
    return found


def _size_from(topic: Topic, number: int, offset: int) -> int:
    return topic.index(number).size_from(offset, topic.partition(number).end)


def _age_of(topic: Topic, number: int, offset: int, now: int) -> float:
    """The age in seconds of the first record that the group has not read, by its timestamp."""
    part = topic.partition(number)
    timestamp = topic.index(number).timestamp_of(offset) if offset < part.end else None
    return 0.0 if timestamp is None else max(0.0, (now - timestamp) / 1e6)


def check_offsets(state: StoreState, offsets: Offsets) -> None:
    """OffsetOutOfRangeError unless every offset is within its partition."""
    for name, by_partition in offsets.items():
        topic = state.topic(name)
        for number, offset in by_partition.items():
            part = topic.partition(number)
            if not part.first <= offset <= part.end:
                raise out_of_range(name, number, offset, part)
