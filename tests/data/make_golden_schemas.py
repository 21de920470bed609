"""The golden store of segments that tell the versions of their topic's schema.

It is in `format-1-schemas`.
"""

from __future__ import annotations

from pathlib import Path

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import KEY
from kmq_storage.format.typed import encode_schema
from kmq_storage.maintenance.seal import plan_seal, seal
from tests.data import make_golden_typed
from tests.data.making import commit, golden_log, send

ROWS, LOG_FILE_BYTES = 20, 16_384
TOPIC = bytes([41]) * 16
SCHEMAS = (make_golden_typed.FIRST, make_golden_typed.SECOND)


def make(folder: Path) -> None:
    """Write the store: a typed topic with a segment of each version of its schema."""
    with golden_log(folder, file_bytes=LOG_FILE_BYTES) as log:
        for version, schema in enumerate(SCHEMAS, 1):
            settings = {"schemas": [encode_schema(each) for each in SCHEMAS[:version]]}
            commit(log, TopicEntry(TOPIC, "typed", 1, settings))
            batch = make_golden_typed.rows(schema, ROWS * (version - 1), ROWS, KEY)
            send(log, TOPIC, 0, batch, version=version)
            seal(log, plan_seal(log.refresh()))
