"""Binary columns as numpy arrays: where the bytes of each row stand, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt


def row_bounds(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where in the column's buffer each row begins, and where the last one ends."""
    if not len(column):  # which may have no buffer
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


def row_bytes(column: pa.Array) -> npt.NDArray[np.uint8]:
    """The bytes of all rows, one after another: of a slice only its own."""
    bounds, data = row_bounds(column), column.buffers()[2]
    if data is None or not len(column):
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
