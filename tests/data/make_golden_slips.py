"""Make the golden store of slips: `python tests/data/make_golden_slips.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-slips` are
never made again.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kmq_storage import paths
from kmq_storage.format.entries import Entry, TopicEntry
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
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import BEGIN_US, environment, rows

QUEUE, FIRST, SECOND = (bytes([n]) * 16 for n in (71, 72, 73))
#: Well behind every commit of the store.
LATER = BEGIN_US + 10**9


def make(folder: Path) -> None:
    """Write the store: a slip that goes on in the checkpoint and behind it, and one taken over."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=16_384), env)
    definition = QueueEntry(QUEUE, "q", QueueSettings().to_json())
    _commit(log, definition, TopicEntry(QUEUE, "queue:q", 1, {}))
    for _ in range(3):
        _records(log)
    _commit(log, _acquire(FIRST, 1, 4))
    _commit(log, _noted(FIRST, 1, BY_OWNER, Run(QUEUE, 0, 1, 2, 1)), _acquire(FIRST, 2, 3))
    _commit(log, _acquire(SECOND, 5, 2))
    checkpoint(log)
    _commit(log, _noted(SECOND, 5, TAKING_OVER))
    _note(disk, FIRST, {2: 1 << 8, 1: 2 << 8 | 1, 3: 2 << 8 | 1, PLACES + 1: 2})
    _note(disk, SECOND, {2: 5 << 8})
    log.close()
    shutil.rmtree(folder / "locks", ignore_errors=True)
    (folder / "log" / "hint").unlink()


def _note(disk: LocalDisk, slip: bytes, words: dict[int, int]) -> None:
    """Words as they were before they proved themselves."""
    page = disk.open_words(paths.slip_file(slip), WORDS)
    for index, word in words.items():
        page.store(index, word)


def _acquire(slip: bytes, number: int, most: int) -> SlipAcquireEntry:
    return SlipAcquireEntry(QUEUE, BEGIN_US, LATER, most, "host-1", (), slip, number)


def _noted(slip: bytes, number: int, by: int, *runs: Run) -> SlipAnswerEntry:
    return SlipAnswerEntry(QUEUE, ACK, BEGIN_US, 0, runs, slip, number, by)


def _commit(log: CommitLog, *entries: Entry) -> None:
    log.commit([Unit(entries)])


def _records(log: CommitLog) -> None:
    stager = Stager(log.files, file_ids(log), sync=True)
    records = PartitionRecords("-", QUEUE, 0, (rows(0, 5, 0),))
    placed = stager.place(records, room=2**20)
    log.commit([Unit(placed.entries, placed.bodies)])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
