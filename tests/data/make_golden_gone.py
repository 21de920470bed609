"""The golden store of deleted topics: `format-1-gone`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import GroupOffsetsEntry, TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.making import commit, golden_log, rows, send

#: Both were called `orders`.
FIRST, SECOND = bytes([41]) * 16, bytes([42]) * 16


def make(folder: Path) -> None:
    """Write the store: two topics of one name, one deleted before the checkpoint, one behind it."""
    with golden_log(folder) as log:
        for topic_id, count in ((FIRST, 10), (SECOND, 4)):
            commit(log, TopicEntry(topic_id, "orders", 2, {}))
            read = GroupOffsetsEntry("reader", -1, topic_id, ((1, 3),))
            send(log, topic_id, 1, rows(0, count, KEY), read, staged=True)
            if topic_id == SECOND:
                checkpoint(log)
            commit(log, TopicEntry(topic_id, "orders", 0, {}))
