"""Giving up in the log what an archive holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from kmq_spark.client.handles.arguments import checked_seconds
from kmq_spark.datasource.planning.history import BRING_BACK, History, history_of
from kmq_spark.lake.places import ArchivePlace
from kmq_spark.lake.record import DELTA
from kmq_storage.errors import DataLossError
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


def check_held(log: CommitLog, place: ArchivePlace) -> None:
    """DataLossError where a Delta table has no longer what the log is to give up for it.

    Somebody may have restored an older version of the table. In Parquet, a look at each file would
    be needed to know.
    """
    history = history_of(log, log.refresh(), place.url)
    if history is None or history.archive.record.format != DELTA:
        return
    for topic, number, (low, behind) in _gone(history):
        raise DataLossError(
            f"{topic.name}-{number}: offsets {low} to {behind - 1} are archived, and in no file of "
            f"archive {place.url} any more, so nothing was trimmed: {BRING_BACK}, or go on without "
            "them by fail_on_data_loss=False (kmq archive --skip-lost)",
            topic=topic.name,
            partition=number,
            start=low,
            end=behind,
        )


def _gone(history: History) -> Iterator[tuple[Topic, int, tuple[int, int]]]:
    """Yield what the log still has of offsets that were archived, and that no file can have."""
    archive, state = history.archive, history.state
    for topic_id, ends in state.group_offsets(archive.record.group).items():
        topic = state.topic_by_id(topic_id)
        if topic is None:  # it was deleted
            continue
        for number, end in ends.items():
            start = topic.partition(number).first
            if start < end:
                held = archive.range(topic.name, topic.topic_id, number, start, end)
                yield from ((topic, number, span) for span in history.absent(held))


def _starts(log: CommitLog, group: str, since: int, topic: Topic) -> dict[int, int]:
    """Where each partition is to begin: nothing is kept of one that has no record so late."""
    archived, reader = log.refresh().group_offsets(group).get(topic.id, {}), ChunkReader(log.files)
    kept = {number: first_offset_since(topic, number, since, reader) for number in archived}
    return {
        number: offset if (first := kept[number]) is None else min(offset, first)
        for number, offset in archived.items()
    }
