"""The golden store of queues: `format-1-queues`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import TopicEntry
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
)
from kmq_storage.format.records import KEY, PROPERTIES
from kmq_storage.format.schedule_entry import Schedule, ScheduleEntry
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.state.queues.rows import NEVER
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from tests.data.making import BEGIN_US, commit, golden_log, rows, send

LOG_FILE_BYTES = 16_384
TOPIC, PLAIN, KEYED, GONE = (bytes([n]) * 16 for n in (61, 62, 63, 64))
SETTINGS = QueueSettings(lock_timeout=5.0, max_deliveries=2, backoff=(1.0,), dead_letter="dead")
#: Well behind every commit of the store, and well behind that.
LATER, MUCH_LATER = BEGIN_US + 10**9, BEGIN_US + 10**10


def make(folder: Path) -> None:
    """Write the store: two queues with records in every state, in a checkpoint and behind it."""
    with golden_log(folder, file_bytes=LOG_FILE_BYTES) as log:
        commit(log, TopicEntry(TOPIC, "t", 2, {}))
        _make_queue(log, PLAIN, "plain", SETTINGS)
        _make_queue(log, KEYED, "keyed", QueueSettings(order="key"))
        _make_queue(log, GONE, "gone", QueueSettings())
        commit(
            log, BindEntry(PLAIN, TOPIC, "earliest"), BindEntry(KEYED, TOPIC, "latest", "n >= 2")
        )
        for partition in (0, 1):
            send(log, TOPIC, partition, rows(0, 5, KEY | PROPERTIES))
        schedules = (Schedule(1, MUCH_LATER, NEVER, 4), Schedule(3, 0, LATER, 9))
        send(log, PLAIN, 0, rows(0, 5, KEY | PROPERTIES), ScheduleEntry(PLAIN, 0, schedules))
        commit(log, QueueEntry(GONE, "gone", None), TopicEntry(GONE, "queue:gone", 0, {}))
        commit(log, AcquireEntry(PLAIN, BEGIN_US, LATER, 9, "host-1"))
        commit(log, _answer(ACK, Run(PLAIN, 0, 0, 1, 1)), _answer(DEAD, Run(PLAIN, 0, 2, 1, 1)))
        checkpoint(log)
        commit(log, _answer(RETRY, Run(TOPIC, 0, 0, 2, 1), at=BEGIN_US))
        commit(log, _answer(EXTEND, Run(TOPIC, 0, 2, 1, 1), at=MUCH_LATER))
        commit(log, _answer(RELEASE, Run(TOPIC, 0, 3, 1, 1)))
        commit(log, AcquireEntry(PLAIN, BEGIN_US, BEGIN_US + 1, 2, "host-2"))
        commit(log, _answer(EXHAUSTED, Run(TOPIC, 0, 0, 1, 2)))
        commit(log, _answer(RECALL, Run(PLAIN, 0, 1, 1, 0)))
        commit(log, LookEntry(KEYED, TOPIC, 0, 0, 5, ((2, 3),), (7, 0, 7)))
        commit(log, AcquireEntry(KEYED, BEGIN_US, LATER, 1, "host-1"))
        commit(log, BindEntry(KEYED, TOPIC, "latest", None))


def _make_queue(log: CommitLog, queue_id: bytes, name: str, settings: QueueSettings) -> None:
    own = TopicEntry(queue_id, f"queue:{name}", 1, {})
    commit(log, QueueEntry(queue_id, name, settings.to_json()), own)


def _answer(what: int, run: Run, *, at: int = 0) -> AnswerEntry:
    return AnswerEntry(PLAIN, what, BEGIN_US, at, (run,))
