"""Make the golden store of segments that tell the versions of their topic's schema.

`python tests/data/make_golden_schemas.py FOLDER`, run once; what it made before must stay readable
for ever, so the files in `format-1-schemas` are never made again.
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
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.local import LocalDisk
from tests.data import make_golden_typed
from tests.data.make_golden import environment, without_traces

ROWS, LOG_FILE_BYTES = 20, 16_384
TOPIC = bytes([41]) * 16
SCHEMAS = (make_golden_typed.FIRST, make_golden_typed.SECOND)


def make(folder: Path) -> None:
    """Write the store: a typed topic with a segment of each version of its schema."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=LOG_FILE_BYTES), env)
    for version, schema in enumerate(SCHEMAS, 1):
        settings = {"schemas": [encode_schema(each) for each in SCHEMAS[:version]]}
        log.commit([Unit((TopicEntry(TOPIC, "typed", 1, settings),))])
        batch = make_golden_typed.rows(schema, ROWS * (version - 1), ROWS, KEY)
        stager = Stager(log.files, file_ids(log), sync=True)
        placed = stager.place(PartitionRecords("-", TOPIC, 0, (batch,), version), room=2**20)
        log.commit([Unit(placed.entries, placed.bodies)])
        seal(log, plan_seal(log.refresh()))
    log.close()
    without_traces(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
