"""Make the golden store of typed topics: `python tests/data/make_golden_typed.py FOLDER`.

Run once; what it made before must stay readable for ever, so the files in `format-1-typed` are
never made again.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import KEY, TOMBSTONES
from kmq_storage.format.typed import encode_schema, stored_columns, typed_schema
from kmq_storage.log.binding import Unit
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager, file_ids
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.objects.local import LocalDisk
from tests.data.make_golden import BEGIN_US, FILE_BYTES, environment, without_traces

SALES = bytes([7]) * 16
FIRST = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("price", pa.decimal128(10, 2)),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("at", pa.timestamp("ms", "Europe/Berlin")),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
SECOND = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), *list(FIRST)[1:], ("note", pa.string_view())]
)


def value(n: int) -> dict[str, Any]:
    """The columns of record n, under the second schema."""
    return {
        "id": n,
        "price": Decimal(n).scaleb(-2),
        "kind": f"kind {n % 3}" if n % 4 else None,
        "at": n,
        "tags": [str(n), None] if n % 2 else None,
        "counts": [("n", n)],
        "note": f"note {n}",
    }


def rows(schema: pa.Schema, first: int, count: int, columns: int) -> SizedBatch:
    """Records whose contents follow from their number; with tombstones the last is one."""
    numbers = list(range(first, first + count))
    own = [value(n) for n in numbers]
    if columns & TOMBSTONES:
        own[-1] = {}
    added = {
        "_timestamp": [BEGIN_US + n for n in numbers],
        "_key": [f"key {n}".encode() for n in numbers],
        "_tombstone": [not each for each in own],
    }
    stored = typed_schema(stored_columns(schema), columns)
    arrays = [
        pa.array(added.get(field.name) or [each.get(field.name) for each in own], field.type)
        for field in stored
    ]
    return SizedBatch(pa.RecordBatch.from_arrays(arrays, schema=stored), 10 * count)


def make(folder: Path) -> None:
    """Write the store: two versions of a schema, in frames, a staged file and a segment."""
    env, disk = environment(), LocalDisk(folder)
    log = LocalLog(disk, open_identity(disk, env, create=True, log_file_bytes=FILE_BYTES), env)
    first, second = encode_schema(FIRST), encode_schema(SECOND)
    _define(log, SALES, "sales", [first])
    _records(log, SALES, rows(FIRST, 0, 3, 0), 1)
    _records(log, SALES, rows(FIRST, 3, 30, KEY), 1, staged=True)
    seal(log, plan_seal(log.refresh()))
    _records(log, SALES, rows(FIRST, 33, 2, KEY), 1)
    _define(log, SALES, "sales", [first, second])
    _records(log, SALES, rows(SECOND, 35, 3, KEY | TOMBSTONES), 2)
    log.close()
    without_traces(folder)


def _define(log: CommitLog, topic: bytes, name: str, schemas: list[str]) -> None:
    log.commit([Unit((TopicEntry(topic, name, 1, {"schemas": schemas}),))])


def _records(
    log: CommitLog, topic: bytes, batch: SizedBatch, version: int, *, staged: bool = False
) -> None:
    stager = Stager(log.files, file_ids(log), sync=True, inline_bytes_max=0 if staged else 2**20)
    placed = stager.place(PartitionRecords("-", topic, 0, (batch,), version), room=2**20)
    log.commit([Unit(placed.entries, placed.bodies)])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
