"""Make the golden store of deleted topics: `python tests/data/make_golden_gone.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-gone` are
never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kmq_storage.format.entries import GroupOffsetsEntry, TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.log.binding import Unit
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import FILE_BYTES, environment, rows, without_traces

#: Both were called `orders`.
FIRST, SECOND = bytes([41]) * 16, bytes([42]) * 16


def make(folder: Path) -> None:
    """Write the store: two topics of one name, one deleted before the checkpoint, one behind it."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    for topic_id, count in ((FIRST, 10), (SECOND, 4)):
        log.commit([Unit((TopicEntry(topic_id, "orders", 2, {}),))])
        stager = Stager(log.files, file_ids(log), sync=True)
        staged = stager.stage(PartitionRecords("orders", topic_id, 1, (rows(0, count, KEY),)))
        read = GroupOffsetsEntry("reader", -1, topic_id, ((1, 3),))
        log.commit([Unit((*staged, read))])
        if topic_id == SECOND:
            checkpoint(log)
        log.commit([Unit((TopicEntry(topic_id, "orders", 0, {}),))])
    log.close()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
