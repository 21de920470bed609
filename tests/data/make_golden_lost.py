"""The golden store of gaps whose lost messages are known, or not: `format-1-lost`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.format.lost_messages import LostMessages, encoded
from kmq_storage.format.records import KEY
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.making import commit, golden_log, rows, send

INBOX = bytes([61]) * 16
KNOWN = encoded([LostMessages(b"key 3", 0, 1), LostMessages(b"\xff", 7, 9)])
#: By base offset, each of two offsets.
LOST = {2: KNOWN, 6: None, 10: b"", 14: KNOWN}


def make(folder: Path) -> None:
    """Write the store: gaps before and behind a checkpoint."""
    with golden_log(folder) as log:
        commit(log, TopicEntry(INBOX, "inbox", 1, {"keyed": True}))
        send(log, INBOX, 0, rows(0, 20, KEY), staged=True)
        _cut_out(log, 2, 6)
        checkpoint(log)
        _cut_out(log, 10, 14)


def _cut_out(log: CommitLog, *starts: int) -> None:
    for start in starts:
        planned = log.refresh().lsn
        span = (start, start + 2)
        commit(log, GapEntry(INBOX, 0, *span, 2, 20, planned, "damaged", LOST[start]))
