"""The golden store of condemned files: `format-1-condemned`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import CondemnEntry, TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.maintenance.checkpointing import checkpoint
from tests.data.make_golden import ORDERS
from tests.data.making import commit, golden_log, rows, send

#: The first one is in the checkpoint, the other behind it.
CONDEMNED = (2, 5)
RECORDS = 6


def make(folder: Path) -> None:
    """Write the store: staged files of before and after each time that older ones were given up."""
    with golden_log(folder) as log:
        commit(log, TopicEntry(ORDERS, "orders", 1, {}))
        for first, before in zip(range(0, RECORDS, 3), CONDEMNED, strict=True):
            send(log, ORDERS, 0, rows(first, 3, KEY), staged=True)
            commit(log, CondemnEntry(before))
            if before == CONDEMNED[0]:
                checkpoint(log)
