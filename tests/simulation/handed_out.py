"""What a consumer hands out, whichever of its calls does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

#: Topic, partition and offset; what identifies it; key and value.
Row = tuple[str, int, int, int, bytes | None, bytes | None]


def rows_of(records: Iterable[Any]) -> list[Row]:
    """Those that are there, of records."""
    return [
        (each.topic, each.partition, each.offset, each[7], each.key, each.value)
        for each in records
        if each is not None
    ]


def rows_in(table: pa.Table | None) -> list[Row]:
    """Those of a table."""
    if table is None:
        return []
    columns = [table[name].to_pylist() for name in ("topic", "partition", "offset")]
    columns.append(table["timestamp"].cast("int64").to_pylist())
    columns += [table[name].to_pylist() for name in ("key", "value")]
    return list(zip(*columns, strict=True))
