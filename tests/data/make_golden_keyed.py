"""The golden store of keyed queues: `format-1-keyed`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.making import commit, golden_log, rows, send

INBOX = bytes([51]) * 16


def make(folder: Path) -> None:
    """Write the store: messages of ten queues, before and behind a checkpoint."""
    with golden_log(folder) as log:
        commit(log, TopicEntry(INBOX, "inbox", 1, {"keyed": True}))
        for first in (0, 10, 0):
            send(log, INBOX, 0, rows(first, 10, KEY), staged=True)
            if first:
                checkpoint(log)
