"""The golden store of a topic that was unbound: `format-1-unbound`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.delivery_numbers import DELIVERIES_APART
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

TOPIC, QUEUE = (bytes([n]) * 16 for n in (74, 75))
#: Well behind every commit of the store.
LATER = BEGIN_US + 10**9


def make(folder: Path) -> None:
    """Write the store: a topic was bound, unbound, bound and unbound again, then bound again.

    All five records were finished the first time; the second time four were handed out and the
    first of them acknowledged; the third time the first was handed out. The checkpoint was made
    when the topic was unbound for the second time.
    """
    with golden_log(folder) as log:

        def hand_out(most: int, done: int, delivery: int) -> None:
            commit(log, AcquireEntry(QUEUE, BEGIN_US, LATER, most, "host-1"))
            if done:
                run = Run(TOPIC, 0, 0, done, delivery)
                commit(log, AnswerEntry(QUEUE, ACK, BEGIN_US, 0, (run,)))

        settings = QueueSettings(lock_timeout=30.0).to_json()
        commit(log, QueueEntry(QUEUE, "mails", settings), TopicEntry(QUEUE, "queue:mails", 1, {}))
        commit(log, TopicEntry(TOPIC, "t", 1, {}))
        commit(log, BindEntry(QUEUE, TOPIC, "earliest"))
        send(log, TOPIC, 0, rows(0, 5, KEY), staged=True)
        hand_out(5, 5, 1)
        for most, done in ((4, 1), (1, 0)):
            commit(log, BindEntry(QUEUE, TOPIC, None))
            if not done:
                checkpoint(log)
            commit(log, BindEntry(QUEUE, TOPIC, "earliest"))
            hand_out(most, done, DELIVERIES_APART + 1)
