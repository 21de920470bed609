"""Make binary columns from bytes, and see them as numpy arrays without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

#: Up to this many values, a column is made without `pa.array()`: see `binary_column`.
FEW = 256


def binary_column(values: Sequence[bytes | None]) -> pa.Array:
    """A binary column of these values; a short one is made from buffers, without `pa.array()`.

    The first `pa.array()` of a process imports pandas, which would delay its first record. For many
    values `pa.array()` is several times as fast.
    """
    count, nulls = len(values), values.count(None)
    if count > FEW:
        return pa.array(values, pa.binary())
    if nulls == count:
        return pa.nulls(count, pa.binary())
    data = [value or b"" for value in values]
    bounds = [0, *accumulate(map(len, data))]
    if bounds[-1] >= 2**31:
        return pa.array(values, pa.binary())
    known = None
    if nulls:
        bits = np.packbits([value is not None for value in values], bitorder="little")
        known = pa.py_buffer(bits)
    parts = [known, pa.py_buffer(np.array(bounds, np.int32)), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.binary(), count, parts)


def row_bounds(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where each row begins in the column's buffer, and where the last row ends."""
    if not len(column):  # an empty column may have no buffer
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


def row_bytes(column: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all rows, one after another; for a slice only those of its rows."""
    bounds, data = row_bounds(column), column.buffers()[2]
    if data is None or not len(column):
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
