"""Make the golden store of keyed queues: `python tests/data/make_golden_keyed.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-keyed` are
never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.log.binding import Unit
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import FILE_BYTES, environment, rows, without_traces

INBOX = bytes([51]) * 16


def make(folder: Path) -> None:
    """Write the store: messages of ten queues, before and behind a checkpoint."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    log.commit([Unit((TopicEntry(INBOX, "inbox", 1, {"keyed": True}),))])
    for first in (0, 10, 0):
        stager = Stager(log.files, file_ids(log), sync=True)
        records = PartitionRecords("inbox", INBOX, 0, (rows(first, 10, KEY),))
        log.commit([Unit(tuple(stager.stage(records)))])
        if first:
            checkpoint(log)
    log.close()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
