"""Giving up in the log what an archive holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from kmq_spark.client.handles.arguments import checked_seconds
from kmq_storage.groups.administration import Offsets, committed_offsets
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.maintenance.trim import trim_topic
from kmq_storage.topics import first_offset_since

if TYPE_CHECKING:
    from kmq_spark.client.store import Store


def trim_archived(store: Store, group: str, keep: float | timedelta) -> Offsets:
    """Trim records that the archive's group has passed and that are older than `keep` (seconds).

    Returns the new starts by topic and partition. Records that aren't archived stay, also when
    their topic was deleted and made again meanwhile. `group`: the name of the query of `start`.
    """
    since = store.log.environment.now_us() - int(checked_seconds("keep", keep) * 1e6)
    starts_of = partial(_starts, store.log, group, since)
    starts: dict[str, Mapping[int, int]] = {}
    for topic in committed_offsets(store.log.refresh(), group):
        starts |= trim_topic(store.log, topic, starts_of).starts
    return starts


def _starts(log: CommitLog, group: str, since: int, topic: Topic) -> dict[int, int]:
    """Where each partition is to begin: nothing is kept of one that has no record so late."""
    archived, reader = log.refresh().group_offsets(group).get(topic.id, {}), ChunkReader(log.files)
    kept = {number: first_offset_since(topic, number, since, reader) for number in archived}
    return {
        number: offset if (first := kept[number]) is None else min(offset, first)
        for number, offset in archived.items()
    }
