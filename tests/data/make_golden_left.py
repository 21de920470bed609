"""The golden store of topics a queue left: `format-1-left`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.queue_entries import (
    ACK,
    AcquireEntry,
    AnswerEntry,
    BindEntry,
    QueueEntry,
    Run,
)
from kmq_storage.format.records import KEY
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from tests.data.making import BEGIN_US, commit, golden_log, rows, send

LEFT, AGAIN, QUEUE = (bytes([n]) * 16 for n in (71, 72, 73))
#: Well behind every commit of the store.
LATER = BEGIN_US + 10**9


def make(folder: Path) -> None:
    """Write the store: of two topics records were held when the queue left them; it read one again.

    Of each five records were handed out, and the first one was acknowledged. The checkpoint was
    made when both were left.
    """
    with golden_log(folder) as log:
        settings = QueueSettings(lock_timeout=30.0).to_json()
        commit(log, QueueEntry(QUEUE, "mails", settings), TopicEntry(QUEUE, "queue:mails", 1, {}))
        for topic, name in ((LEFT, "left"), (AGAIN, "again")):
            commit(log, TopicEntry(topic, name, 1, {}))
            commit(log, BindEntry(QUEUE, topic, "earliest"))
            send(log, topic, 0, rows(0, 5, KEY), staged=True)
            commit(log, AcquireEntry(QUEUE, BEGIN_US, LATER, 5, "host-1"))
            commit(log, AnswerEntry(QUEUE, ACK, BEGIN_US, 0, (Run(topic, 0, 0, 1, 1),)))
            commit(log, BindEntry(QUEUE, topic, None))
        checkpoint(log)
        commit(log, BindEntry(QUEUE, AGAIN, "earliest"))
