"""The golden store of typed topics: `format-1-typed`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from kmq_storage.format.entries import TopicEntry
from kmq_storage.format.records import KEY, TOMBSTONES
from kmq_storage.format.typed import encode_schema, stored_columns, typed_schema
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.staging import SizedBatch
from kmq_storage.maintenance.seal import plan_seal, seal
from tests.data.making import BEGIN_US, commit, golden_log, send

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
    with golden_log(folder) as log:
        first, second = encode_schema(FIRST), encode_schema(SECOND)
        _define(log, [first])
        send(log, SALES, 0, rows(FIRST, 0, 3, 0), version=1)
        send(log, SALES, 0, rows(FIRST, 3, 30, KEY), version=1, staged=True)
        seal(log, plan_seal(log.refresh()))
        send(log, SALES, 0, rows(FIRST, 33, 2, KEY), version=1)
        _define(log, [first, second])
        send(log, SALES, 0, rows(SECOND, 35, 3, KEY | TOMBSTONES), version=2)


def _define(log: CommitLog, schemas: list[str]) -> None:
    commit(log, TopicEntry(SALES, "sales", 1, {"schemas": schemas}))
