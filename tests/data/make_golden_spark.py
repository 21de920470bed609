"""The golden store of Spark's writes: `format-1-spark`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import BatchIdEntry, GroupOffsetsEntry, TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.making import commit, golden_log, rows, send

TOTALS = bytes([31]) * 16
APPLICATIONS = {"job": (8, 5), "query": (1, 4)}


def make(folder: Path) -> None:
    """Write the store: batches of two applications, staged, some of them behind a checkpoint."""
    with golden_log(folder) as log:
        commit(log, TopicEntry(TOTALS, "totals", 1, {}))
        _write(log, BatchIdEntry("query", 0), 0)
        _write(log, BatchIdEntry("job", 7), 10)
        _write(log, BatchIdEntry("query", 1), 20)
        checkpoint(log)
        _write(log, BatchIdEntry("job", 8), 30)


def _write(log: CommitLog, batch: BatchIdEntry, first: int) -> None:
    moved = GroupOffsetsEntry("group", -1, TOTALS, ((0, first + 10),))
    send(log, TOTALS, 0, rows(first, 10, KEY), batch, moved, staged=True)
