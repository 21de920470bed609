"""Make the golden store of Spark's writes: `python tests/data/make_golden_spark.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-spark` are
never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kmq_storage.format.entries import BatchIdEntry, GroupOffsetsEntry, TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import FILE_BYTES, environment, rows, without_traces

TOTALS = bytes([31]) * 16
APPLICATIONS = {"job": (8, 5), "query": (1, 4)}


def make(folder: Path) -> None:
    """Write the store: batches of two applications, staged, some of them behind a checkpoint."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    log.commit([Unit((TopicEntry(TOTALS, "totals", 1, {}),))])
    _write(log, BatchIdEntry("query", 0), 0)
    _write(log, BatchIdEntry("job", 7), 10)
    _write(log, BatchIdEntry("query", 1), 20)
    checkpoint(log)
    _write(log, BatchIdEntry("job", 8), 30)
    log.close()
    without_traces(folder)


def _write(log: CommitLog, batch: BatchIdEntry, first: int) -> None:
    stager = Stager(log.files, file_ids(log), sync=True)
    staged = stager.stage(PartitionRecords("totals", TOTALS, 0, (rows(first, 10, KEY),)))
    moved = GroupOffsetsEntry("group", -1, TOTALS, ((0, first + 10),))
    log.commit([Unit((batch, *staged, moved))])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
