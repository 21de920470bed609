"""Make the golden store of batches that are not sealed and have behind them what proves columns.

`python tests/data/make_golden_parts.py FOLDER`, run once; what it made before must stay readable
for ever, so the files in `format-1-parts` are never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.format.typed import encode_schema
from kmq_storage.log.binding import Unit
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.local import LocalDisk
from tests.data import make_golden_typed
from tests.data.make_golden import environment, without_traces

ROWS, LOG_FILE_BYTES = 1_000, 131_072
SCHEMA = make_golden_typed.FIRST
#: By name: bytes of a batch that goes inside a commit at most, so that one is staged.
PLACES = {"inside": 2**20, "staged": 0}


def make(folder: Path) -> None:
    """Write the store: two batches for a staged file, one inside a commit."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=LOG_FILE_BYTES), env)
    for number, (name, inline) in enumerate(PLACES.items(), 51):
        topic = bytes([number]) * 16
        log.commit([Unit((TopicEntry(topic, name, 1, {"schemas": [encode_schema(SCHEMA)]}),))])
        starts = (0,) if inline else (0, ROWS)
        batches = [make_golden_typed.rows(SCHEMA, start, ROWS, KEY) for start in starts]
        stager = Stager(log.files, file_ids(log), sync=True, inline_bytes_max=inline)
        records = PartitionRecords(name, topic, 0, tuple(batches), 1)
        placed = stager.place(records, room=2**20)
        log.commit([Unit(placed.entries, placed.bodies)])
    log.close()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
