"""The golden store of batches that are not sealed and have behind them what proves columns.

It is in `format-1-parts`.
"""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.format.typed import encode_schema
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from tests.data import make_golden_typed
from tests.data.making import commit, golden_log

ROWS, LOG_FILE_BYTES = 1_000, 131_072
SCHEMA = make_golden_typed.FIRST
#: By name: the room for batches inside a commit, so that one topic's are staged.
PLACES = {"inside": 2**20, "staged": 0}


def make(folder: Path) -> None:
    """Write the store: two batches for a staged file, one inside a commit."""
    with golden_log(folder, file_bytes=LOG_FILE_BYTES) as log:
        for number, (name, room) in enumerate(PLACES.items(), 51):
            topic = bytes([number]) * 16
            commit(log, TopicEntry(topic, name, 1, {"schemas": [encode_schema(SCHEMA)]}))
            starts = (0,) if room else (0, ROWS)
            batches = [make_golden_typed.rows(SCHEMA, start, ROWS, KEY) for start in starts]
            stager = Stager(log.files, file_ids(log), sync=True)
            records = PartitionRecords(name, topic, 0, tuple(batches), 1)
            placed = stager.place(records, room=room)
            log.commit([Unit(placed.entries, placed.bodies)])
