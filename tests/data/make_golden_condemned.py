"""Make the golden store of condemned files: `python tests/data/make_golden_condemned.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-condemned`
are never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kmq_storage.format.entries import CondemnEntry, TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.log.binding import Unit
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import FILE_BYTES, ORDERS, environment, rows, without_traces

#: The first one is in the checkpoint, the other behind it.
CONDEMNED = (2, 5)
RECORDS = 6


def make(folder: Path) -> None:
    """Write the store: staged files of before and after each time that older ones were given up."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    log.commit([Unit((TopicEntry(ORDERS, "orders", 1, {}),))])
    for first, before in zip(range(0, RECORDS, 3), CONDEMNED, strict=True):
        stager = Stager(log.files, file_ids(log), sync=True)
        staged = stager.stage(PartitionRecords("orders", ORDERS, 0, (rows(first, 3, KEY),)))
        log.commit([Unit(staged)])
        log.commit([Unit((CondemnEntry(before),))])
        if before == CONDEMNED[0]:
            checkpoint(log)
    log.close()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
