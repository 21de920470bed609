"""Make the golden store of segments whose columns are proven one by one.

`python tests/data/make_golden_columns.py FOLDER`, run once; what it made before must stay readable
for ever, so the files in `format-1-columns` are never made again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import HEADERS, KEY, PROPERTIES
from kmq_storage.format.typed import encode_schema
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.local import LocalDisk
from tests.data import make_golden_typed
from tests.data.make_golden import environment, rows, without_traces

ROWS, LOG_FILE_BYTES = 100, 32_768
#: By name: the columns that records have, and how segments are compressed.
PLAIN = {
    "full": (KEY | HEADERS | PROPERTIES, None),
    "packed": (KEY | HEADERS | PROPERTIES, "lz4"),
    "nulls": (0, None),
}
SCHEMA = make_golden_typed.FIRST


def make(folder: Path) -> None:
    """Write the store: every topic sealed, and nothing else in it."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=LOG_FILE_BYTES), env)
    for number, (name, (columns, compression)) in enumerate(PLAIN.items(), 31):
        settings = {"compression": compression} if compression else {}
        _filled(log, bytes([number]) * 16, name, settings, rows(0, ROWS, columns))
    settings = {"schemas": [encode_schema(SCHEMA)]}
    typed = make_golden_typed.rows(SCHEMA, 0, ROWS, KEY)
    _filled(log, bytes([39]) * 16, "typed", settings, typed, version=1)
    seal(log, plan_seal(log.refresh()))
    log.close()
    without_traces(folder)


def _filled(
    log: CommitLog,
    topic: bytes,
    name: str,
    settings: dict[str, Any],
    batch: SizedBatch,
    *,
    version: int = 0,
) -> None:
    log.commit([Unit((TopicEntry(topic, name, 1, settings),))])
    stager = Stager(log.files, file_ids(log), sync=True)
    placed = stager.place(PartitionRecords("-", topic, 0, (batch,), version), room=2**20)
    log.commit([Unit(placed.entries, placed.bodies)])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
