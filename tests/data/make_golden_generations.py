"""The golden store of a deleted group, which leaves its generations: `format-1-generations`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import GroupEntry, GroupOffsetsEntry, TopicEntry
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.making import commit, golden_log

TOPIC = bytes([63]) * 16
#: The generation of the group that is deleted.
LAST = 7


def make(folder: Path) -> None:
    """Write the store: a group of a query, which is deleted before a checkpoint."""
    with golden_log(folder) as log:
        commit(log, TopicEntry(TOPIC, "orders", 1, {}))
        for generation in range(1, LAST + 1):
            commit(log, GroupEntry("g", generation, "query", "host-1", {"orders": [0]}))
        commit(log, GroupOffsetsEntry("g", LAST, TOPIC, ((0, 0),)))
        commit(log, GroupEntry("g", 0, "", "", {}))
        checkpoint(log)
