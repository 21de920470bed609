"""The golden store of answers that say why: `format-1-reasons`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.queue_entries import ACK, RETRY, AcquireEntry, AnswerEntry, QueueEntry, Run
from kmq_storage.format.records import KEY
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.model import QueueSettings
from tests.data.making import BEGIN_US, commit, golden_log, rows, send

QUEUE = bytes([62]) * 16
LATER = BEGIN_US + 10**10
#: The reason of each record's answer.
REASONS = ("the mail server is down", "keine Lösung: ü\n", "")


def make(folder: Path) -> None:
    """Write the store: three records, of which two are to be tried again."""
    with golden_log(folder) as log:
        own = TopicEntry(QUEUE, "queue:mails", 1, {})
        commit(log, QueueEntry(QUEUE, "mails", QueueSettings().to_json()), own)
        send(log, QUEUE, 0, rows(1, len(REASONS), KEY))
        commit(log, AcquireEntry(QUEUE, BEGIN_US, LATER, len(REASONS), "host-1"))
        for offset, (what, reason) in enumerate(zip((RETRY, RETRY, ACK), REASONS, strict=True)):
            run = Run(QUEUE, 0, offset, 1, 1)
            commit(log, AnswerEntry(QUEUE, what, BEGIN_US, LATER, (run,), reason=reason))
        checkpoint(log)
