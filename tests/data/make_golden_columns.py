"""The golden store of segments whose columns are proven one by one: `format-1-columns`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import HEADERS, KEY, PROPERTIES
from kmq_storage.format.typed import encode_schema
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import SizedBatch
from kmq_storage.maintenance.seal import plan_seal, seal
from tests.data import make_golden_typed
from tests.data.making import commit, golden_log, rows, send

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
    with golden_log(folder, file_bytes=LOG_FILE_BYTES) as log:
        for number, (name, (columns, compression)) in enumerate(PLAIN.items(), 31):
            settings = {"compression": compression} if compression else {}
            _filled(log, bytes([number]) * 16, name, settings, rows(0, ROWS, columns))
        settings = {"schemas": [encode_schema(SCHEMA)]}
        typed = make_golden_typed.rows(SCHEMA, 0, ROWS, KEY)
        _filled(log, bytes([39]) * 16, "typed", settings, typed, version=1)
        seal(log, plan_seal(log.refresh()))


def _filled(
    log: CommitLog,
    topic: bytes,
    name: str,
    settings: dict[str, Any],
    batch: SizedBatch,
    *,
    version: int = 0,
) -> None:
    commit(log, TopicEntry(topic, name, 1, settings))
    send(log, topic, 0, batch, version=version)
