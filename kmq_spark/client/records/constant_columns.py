"""Columns with one value in every row: many batches share few of them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa


def constant(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    """A column of one value; a slice of a longer one that others share."""
    # A power of two, so that batches of all sizes share few columns.
    return _repeated(value, kind, 1 << max(rows - 1, 0).bit_length()).slice(0, rows)


@lru_cache(maxsize=16)
def _repeated(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Made of buffers: the first `pa.scalar()` of a process imports pandas."""
    if value is None:
        return pa.nulls(rows, kind)
    if isinstance(value, int):
        numbers = np.full(rows, value, f"<i{kind.bit_width // 8}")
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)])
    data = value.encode()
    bounds = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    texts = [None, pa.py_buffer(bounds), pa.py_buffer(data * rows)]
    return pa.Array.from_buffers(kind, rows, texts)
