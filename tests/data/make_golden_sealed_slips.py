"""The golden store of slips whose words prove themselves: `format-1-sealed-slips`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage import paths
from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.queue_entries import (
    BY_OWNER,
    TAKING_OVER,
    QueueEntry,
    Run,
    SealedSlipAcquireEntry,
)
from kmq_storage.format.slip_words import PLACES, WORDS, SlipWords
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from kmq_storage.objects.disk import Disk
from tests.data.make_golden_slips import FIRST, LATER, QUEUE, SECOND, _noted
from tests.data.making import BEGIN_US, commit, golden_log, rows, send

#: No machine was ever started as this one.
BOOT = 2**32


def make(folder: Path, boot: int = BOOT) -> None:
    """Write the store: a slip that goes on in the checkpoint and behind it, and one taken over."""
    with golden_log(folder, file_bytes=16_384) as log:
        definition = QueueEntry(QUEUE, "q", QueueSettings().to_json())
        commit(log, definition, TopicEntry(QUEUE, "queue:q", 1, {}))
        for _ in range(3):
            send(log, QUEUE, 0, rows(0, 5, 0))
        commit(log, _acquire(FIRST, 1, 4, boot))
        done = Run(QUEUE, 0, 1, 2, 1)
        commit(log, _noted(FIRST, 1, BY_OWNER, done), _acquire(FIRST, 2, 4, boot))
        commit(log, _acquire(SECOND, 5, 2, boot))
        checkpoint(log)
        commit(log, _noted(SECOND, 5, TAKING_OVER))
        # In round 2 the places 0 and 2 are a group, 3 is of one that never counted, 1 of round 1.
        round_2 = {1: (2, 1), 2: (1, 0), 3: (2, 1), 4: (2, 2), PLACES + 1: (2, 2)}
        _write(log.files, FIRST, round_2)
        _write(log.files, SECOND, {2: (5, 0), 0: (5, 0)})


def _acquire(slip: bytes, number: int, most: int, boot: int) -> SealedSlipAcquireEntry:
    facts = (QUEUE, BEGIN_US, LATER, most, "host-1", (), slip, number, boot)
    return SealedSlipAcquireEntry(*facts)


def _write(disk: Disk, slip: bytes, told: dict[int, tuple[int, int]]) -> None:
    """A slip whose words tell these rounds and numbers, and the others that nobody set them."""
    page, seals = disk.open_words(paths.slip_file(slip), WORDS), SlipWords(slip)
    for index in range(WORDS):
        (word,) = seals.sealed_at([index], *told.get(index, (0, 0)))
        page.store(index, word)
