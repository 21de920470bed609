"""Make the golden store of topics a queue left: `python tests/data/make_golden_left.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-left` are
never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kmq_storage.format.entries import Entry, TopicEntry
from kmq_storage.format.queue_entries import (
    ACK,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    QueueEntry,
    Run,
)
from kmq_storage.format.records import KEY
from kmq_storage.log.binding import Unit
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import BEGIN_US, FILE_BYTES, environment, rows, without_traces

LEFT, AGAIN, QUEUE = (bytes([n]) * 16 for n in (71, 72, 73))
#: Well behind every commit of the store.
LATER = BEGIN_US + 10**9


def make(folder: Path) -> None:
    """Write the store: of two topics records were held when the queue left them; it read one again.

    Of each five records were handed out, and the first one was acknowledged. The checkpoint was
    made when both were left.
    """
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    stager = Stager(log.files, file_ids(log), sync=True)

    def commit(*entries: Entry) -> None:
        log.commit([Unit(entries)])

    settings = QueueSettings(lock_timeout=30.0).to_json()
    commit(QueueEntry(QUEUE, "mails", settings), TopicEntry(QUEUE, "queue:mails", 1, {}))
    for topic, name in ((LEFT, "left"), (AGAIN, "again")):
        commit(TopicEntry(topic, name, 1, {}))
        commit(BindEntry(QUEUE, topic, "earliest"))
        commit(*stager.stage(PartitionRecords(name, topic, 0, (rows(0, 5, KEY),))))
        commit(AcquireEntry(QUEUE, BEGIN_US, LATER, 5, "host-1"))
        commit(AnswerEntry(QUEUE, ACK, BEGIN_US, 0, (Run(topic, 0, 0, 1, 1),)))
        commit(BindEntry(QUEUE, topic, None))
    checkpoint(log)
    commit(BindEntry(QUEUE, AGAIN, "earliest"))
    log.close()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
