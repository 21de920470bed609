"""Make the golden store of queues: `python tests/data/make_golden_queues.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-queues` are
never made again.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kmq_storage.format.entries import Entry, TopicEntry
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXHAUSTED,
    EXTEND,
    RECALL,
    RELEASE,
    RETRY,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    LookEntry,
    QueueEntry,
    Run,
    Schedule,
    ScheduleEntry,
)
from kmq_storage.format.records import KEY, PROPERTIES
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.queue_rows import NEVER
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import BEGIN_US, environment, rows

LOG_FILE_BYTES = 16_384
TOPIC, PLAIN, KEYED, GONE = (bytes([n]) * 16 for n in (61, 62, 63, 64))
SETTINGS = QueueSettings(lock_timeout=5.0, max_deliveries=2, backoff=(1.0,), dead_letter="dead")
#: Well behind every commit of the store, and well behind that.
LATER, MUCH_LATER = BEGIN_US + 10**9, BEGIN_US + 10**10


def make(folder: Path) -> None:
    """Write the store: two queues with records in every state, in a checkpoint and behind it."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=LOG_FILE_BYTES), env)
    _commit(log, TopicEntry(TOPIC, "t", 2, {}))
    _make_queue(log, PLAIN, "plain", SETTINGS)
    _make_queue(log, KEYED, "keyed", QueueSettings(order="key"))
    _make_queue(log, GONE, "gone", QueueSettings())
    _commit(log, BindEntry(PLAIN, TOPIC, "earliest"), BindEntry(KEYED, TOPIC, "latest", "n >= 2"))
    for partition in (0, 1):
        _records(log, TOPIC, partition)
    _records(
        log,
        PLAIN,
        0,
        ScheduleEntry(PLAIN, 0, (Schedule(1, MUCH_LATER, NEVER, 4), Schedule(3, 0, LATER, 9))),
    )
    _commit(log, QueueEntry(GONE, "gone", None), TopicEntry(GONE, "queue:gone", 0, {}))
    _commit(log, AcquireEntry(PLAIN, BEGIN_US, LATER, 9, "host-1"))
    _commit(log, _answer(ACK, Run(PLAIN, 0, 0, 1, 1)), _answer(DEAD, Run(PLAIN, 0, 2, 1, 1)))
    checkpoint(log)
    _commit(log, _answer(RETRY, Run(TOPIC, 0, 0, 2, 1), at=BEGIN_US))
    _commit(log, _answer(EXTEND, Run(TOPIC, 0, 2, 1, 1), at=MUCH_LATER))
    _commit(log, _answer(RELEASE, Run(TOPIC, 0, 3, 1, 1)))
    _commit(log, AcquireEntry(PLAIN, BEGIN_US, BEGIN_US + 1, 2, "host-2"))
    _commit(log, _answer(EXHAUSTED, Run(TOPIC, 0, 0, 1, 2)))
    _commit(log, _answer(RECALL, Run(PLAIN, 0, 1, 1, 0)))
    _commit(log, LookEntry(KEYED, TOPIC, 0, 0, 5, ((2, 3),), (7, 0, 7)))
    _commit(log, AcquireEntry(KEYED, BEGIN_US, LATER, 1, "host-1"))
    _commit(log, BindEntry(KEYED, TOPIC, "latest", None))
    log.close()
    shutil.rmtree(folder / "locks", ignore_errors=True)
    (folder / "log" / "hint").unlink()


def _make_queue(log: CommitLog, queue_id: bytes, name: str, settings: QueueSettings) -> None:
    own = TopicEntry(queue_id, f"queue:{name}", 1, {})
    _commit(log, QueueEntry(queue_id, name, settings.to_json()), own)


def _answer(what: int, run: Run, *, at: int = 0) -> AnswerEntry:
    queue = PLAIN
    return AnswerEntry(queue, what, BEGIN_US, at, (run,))


def _commit(log: CommitLog, *entries: Entry) -> None:
    log.commit([Unit(entries)])


def _records(log: CommitLog, topic: bytes, partition: int, *also: Entry) -> None:
    stager = Stager(log.files, file_ids(log), sync=True)
    records = PartitionRecords("-", topic, partition, (rows(0, 5, KEY | PROPERTIES),))
    placed = stager.place(records, room=2**20)
    log.commit([Unit(placed.entries + also, placed.bodies)])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
