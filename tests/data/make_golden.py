"""The golden store of format 1: `format-1`."""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import (
    BatchIdEntry,
    GroupEntry,
    GroupOffsetsEntry,
    ProducerEntry,
    TopicEntry,
)
from kmq_storage.format.records import HEADERS, KEY, PROPERTIES
from tests.data.making import commit, golden_log, rows, send

ORDERS, AUDIT, GONE = (bytes([n]) * 16 for n in (1, 2, 3))


def make(folder: Path) -> None:
    """Write the store: every kind of entry, two log files, and one staged file."""
    with golden_log(folder) as log:
        commit(log, TopicEntry(ORDERS, "orders", 2, {"capacity": 1000}))
        commit(log, TopicEntry(AUDIT, "audit", 1, {}))
        commit(log, TopicEntry(GONE, "gone", 1, {}))
        send(log, ORDERS, 0, rows(0, 3, 0), ProducerEntry("producer", 1, 0))
        send(log, ORDERS, 1, rows(10, 2, KEY | HEADERS), BatchIdEntry("query", 7))
        commit(log, GroupEntry("group", 1, "member", "host-1", {"orders": [0, 1]}))
        send(log, AUDIT, 0, rows(20, 2, KEY | HEADERS | PROPERTIES))
        send(log, ORDERS, 0, rows(30, 40, KEY), staged=True)
        commit(log, GroupOffsetsEntry("group", 1, ORDERS, ((0, 43), (1, 1))))
        commit(log, TopicEntry(GONE, "gone", 0, {}))
        send(log, ORDERS, 0, rows(70, 1, 0), ProducerEntry("producer", 1, 1))
