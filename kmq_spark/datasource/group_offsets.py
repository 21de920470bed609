"""A stream's group: it follows the batches that the sink has committed, and never goes back."""

from __future__ import annotations

from collections.abc import Mapping

from kmq_spark.datasource.offsets import StreamOffset
from kmq_storage.format.entries import GroupOffsetsEntry
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state import StoreState
from kmq_storage.log.topic_state import Topic

#: Commits from outside a group's members, as an administrator's, are of no generation.
_NO_MEMBER = -1


def advance_group(log: CommitLog, group: str, finished: StreamOffset) -> None:
    """Commit a finished position as the group's, where it is further than the group is."""
    entries = _entries(log.state, group, finished)
    if entries:
        # Not waited for: the checkpoint is the query's own memory, and the next look syncs it.
        log.commit([Unit(entries)], durable=False)


def _entries(
    state: StoreState, group: str, finished: StreamOffset
) -> tuple[GroupOffsetsEntry, ...]:
    committed = state.group_offsets(group)
    entries = []
    for name, topic_id in (finished.ids or {}).items():
        topic = state.topic_by_id(topic_id.bytes)
        if topic is None:
            continue
        further = _further(topic, finished.positions[name], committed.get(topic.id, {}))
        if further:
            entries.append(GroupOffsetsEntry(group, _NO_MEMBER, topic.id, further))
    return tuple(entries)


def _further(
    topic: Topic, finished: Mapping[int, int], committed: Mapping[int, int]
) -> tuple[tuple[int, int], ...]:
    bounds = topic.offsets()
    # A group's offset must lie in the log, whose start may have passed a slow reader.
    inside = {p: min(max(n, bounds[p][0]), bounds[p][1]) for p, n in finished.items()}
    return tuple((p, n) for p, n in sorted(inside.items()) if n > committed.get(p, -1))
