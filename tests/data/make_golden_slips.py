"""The golden store of slips: `format-1-slips`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage import paths
from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.queue_entries import (
    ACK,
    BY_OWNER,
    TAKING_OVER,
    QueueEntry,
    Run,
    SlipAcquireEntry,
    SlipAnswerEntry,
)
from kmq_storage.format.slip_words import PLACES, WORDS
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from kmq_storage.objects.disk import Disk
from tests.data.making import BEGIN_US, commit, golden_log, rows, send

QUEUE, FIRST, SECOND = (bytes([n]) * 16 for n in (71, 72, 73))
#: Well behind every commit of the store.
LATER = BEGIN_US + 10**9


def make(folder: Path) -> None:
    """Write the store: a slip that goes on in the checkpoint and behind it, and one taken over."""
    with golden_log(folder, file_bytes=16_384) as log:
        definition = QueueEntry(QUEUE, "q", QueueSettings().to_json())
        commit(log, definition, TopicEntry(QUEUE, "queue:q", 1, {}))
        for _ in range(3):
            send(log, QUEUE, 0, rows(0, 5, 0))
        commit(log, _acquire(FIRST, 1, 4))
        commit(log, _noted(FIRST, 1, BY_OWNER, Run(QUEUE, 0, 1, 2, 1)), _acquire(FIRST, 2, 3))
        commit(log, _acquire(SECOND, 5, 2))
        checkpoint(log)
        commit(log, _noted(SECOND, 5, TAKING_OVER))
        _note(log.files, FIRST, {2: 1 << 8, 1: 2 << 8 | 1, 3: 2 << 8 | 1, PLACES + 1: 2})
        _note(log.files, SECOND, {2: 5 << 8})


def _note(disk: Disk, slip: bytes, words: dict[int, int]) -> None:
    """Words as they were before they proved themselves."""
    page = disk.open_words(paths.slip_file(slip), WORDS)
    for index, word in words.items():
        page.store(index, word)


def _acquire(slip: bytes, number: int, most: int) -> SlipAcquireEntry:
    return SlipAcquireEntry(QUEUE, BEGIN_US, LATER, most, "host-1", (), slip, number)


def _noted(slip: bytes, number: int, by: int, *runs: Run) -> SlipAnswerEntry:
    return SlipAnswerEntry(QUEUE, ACK, BEGIN_US, 0, runs, slip, number, by)
