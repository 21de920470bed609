"""The values beneath a column of lists or maps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types


def beneath(column: Any) -> list[pa.Array]:
    """The items of all rows of a column; of a map, first the keys, then the items.

    Rows outside of the column's slice have none here. Items beneath a null are included.
    """
    kind = column.type
    if types.is_fixed_size_list(kind):
        length = kind.list_size
        return [column.values.slice(column.offset * length, len(column) * length)]
    first, last = (column.offsets[at].as_py() for at in (0, -1)) if len(column) else (0, 0)
    parts = [column.keys, column.items] if types.is_map(kind) else [column.values]
    return [part.slice(first, last - first) for part in parts]
