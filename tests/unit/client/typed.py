"""The typed topic that the tests of typed topics have in common."""

from __future__ import annotations

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(6, 2)),
        ("at", pa.timestamp("ms", "Europe/Berlin")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("clock", pa.time32("s")),
        ("took", pa.duration("s")),
        ("half", pa.float16()),
        ("raw", pa.binary(2)),
        ("tags", pa.list_(pa.field("item", pa.string(), nullable=False))),
        ("pair", pa.list_(pa.int8(), 2)),
        ("place", pa.struct([pa.field("x", pa.int16(), nullable=False), ("y", pa.int16())])),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("flag", pa.bool_()),
    ]
)
ADDED = ["_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", "_properties"]
NOTHING = dict.fromkeys(SCHEMA.names)
