"""Columns with one value in every row: many batches share few of them."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa


def constant(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    """A column of one value; a slice of a longer one that others share."""
    # A power of two, so that batches of all sizes share few columns.
    return _repeated(value, kind, 1 << max(rows - 1, 0).bit_length()).slice(0, rows)


@lru_cache(maxsize=16)
def _repeated(value: str | int | None, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)
