"""The values beneath a column of lists or maps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types


def beneath(column: Any) -> list[pa.Array]:
    """The items of all rows, of maps their keys before that; nothing of rows that were sliced off.

    Items that stand beneath a null are among them.
    """
    kind = column.type
    if types.is_fixed_size_list(kind):
        length = kind.list_size
        return [column.values.slice(column.offset * length, len(column) * length)]
    first, last = (column.offsets[at].as_py() for at in (0, -1)) if len(column) else (0, 0)
    parts = [column.keys, column.items] if types.is_map(kind) else [column.values]
    return [part.slice(first, last - first) for part in parts]
