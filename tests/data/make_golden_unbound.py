"""Make the golden store of a topic that was unbound: `make_golden_unbound.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-unbound` are
never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kmq_storage.format.delivery_numbers import DELIVERIES_APART
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

TOPIC, QUEUE = (bytes([n]) * 16 for n in (74, 75))
#: Well behind every commit of the store.
LATER = BEGIN_US + 10**9


def make(folder: Path) -> None:
    """Write the store: a topic was bound, unbound, bound and unbound again, then bound again.

    All five records were finished the first time; the second time four were handed out and the
    first of them acknowledged; the third time the first was handed out. The checkpoint was made
    when the topic was unbound for the second time.
    """
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    stager = Stager(log.files, file_ids(log), sync=True)

    def commit(*entries: Entry) -> None:
        log.commit([Unit(entries)])

    def hand_out(most: int, done: int, delivery: int) -> None:
        commit(AcquireEntry(QUEUE, BEGIN_US, LATER, most, "host-1"))
        if done:
            run = Run(TOPIC, 0, 0, done, delivery)
            commit(AnswerEntry(QUEUE, ACK, BEGIN_US, 0, (run,)))

    settings = QueueSettings(lock_timeout=30.0).to_json()
    commit(QueueEntry(QUEUE, "mails", settings), TopicEntry(QUEUE, "queue:mails", 1, {}))
    commit(TopicEntry(TOPIC, "t", 1, {}))
    commit(BindEntry(QUEUE, TOPIC, "earliest"))
    commit(*stager.stage(PartitionRecords("t", TOPIC, 0, (rows(0, 5, KEY),))))
    hand_out(5, 5, 1)
    for most, done in ((4, 1), (1, 0)):
        commit(BindEntry(QUEUE, TOPIC, None))
        if not done:
            checkpoint(log)
        commit(BindEntry(QUEUE, TOPIC, "earliest"))
        hand_out(most, done, DELIVERIES_APART + 1)
    log.close()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
