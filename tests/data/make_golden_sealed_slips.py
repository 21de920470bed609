"""Make the golden store of slips whose words prove themselves.

`python tests/data/make_golden_sealed_slips.py FOLDER`, run once; what it made before must stay
readable for ever, so the files in `format-1-sealed-slips` are never made again.
"""

from __future__ import annotations

import shutil
import sys
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
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import BEGIN_US, environment
from tests.data.make_golden_slips import FIRST, LATER, QUEUE, SECOND, _commit, _noted, _records

#: No machine was ever started as this one.
BOOT = 2**32


def make(folder: Path, boot: int = BOOT) -> None:
    """Write the store: a slip that goes on in the checkpoint and behind it, and one taken over."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=16_384), env)
    definition = QueueEntry(QUEUE, "q", QueueSettings().to_json())
    _commit(log, definition, TopicEntry(QUEUE, "queue:q", 1, {}))
    for _ in range(3):
        _records(log)
    _commit(log, _acquire(FIRST, 1, 4, boot))
    done = Run(QUEUE, 0, 1, 2, 1)
    _commit(log, _noted(FIRST, 1, BY_OWNER, done), _acquire(FIRST, 2, 4, boot))
    _commit(log, _acquire(SECOND, 5, 2, boot))
    checkpoint(log)
    _commit(log, _noted(SECOND, 5, TAKING_OVER))
    # In round 2 the places 0 and 2 are a group, 3 is of one that never counted, 1 of round 1.
    round_2 = {1: (2, 1), 2: (1, 0), 3: (2, 1), 4: (2, 2), PLACES + 1: (2, 2)}
    _write(disk, FIRST, round_2)
    _write(disk, SECOND, {2: (5, 0), 0: (5, 0)})
    log.close()
    shutil.rmtree(folder / "locks", ignore_errors=True)
    (folder / "log" / "hint").unlink()


def _acquire(slip: bytes, number: int, most: int, boot: int) -> SealedSlipAcquireEntry:
    facts = (QUEUE, BEGIN_US, LATER, most, "host-1", (), slip, number, boot)
    return SealedSlipAcquireEntry(*facts)


def _write(disk: LocalDisk, slip: bytes, told: dict[int, tuple[int, int]]) -> None:
    """A slip whose words tell these rounds and numbers, and the others that nobody set them."""
    page, seals = disk.open_words(paths.slip_file(slip), WORDS), SlipWords(slip)
    for index in range(WORDS):
        (word,) = seals.sealed_at([index], *told.get(index, (0, 0)))
        page.store(index, word)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
