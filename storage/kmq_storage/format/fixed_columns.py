"""Batches of numbers and ids, none null, that every process writes which looks after a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

Column: TypeAlias = "Sequence[Any] | npt.NDArray[Any]"


def fixed_batch(columns: Iterable[Column], schema: pa.Schema) -> pa.RecordBatch:
    """The batch of these columns; the first `pa.array()` of a process would import pandas."""
    arrays = [_column(*each) for each in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(values: Column, kind: pa.DataType) -> pa.Array:
    data: Any
    if pa.types.is_fixed_size_binary(kind):
        data = b"".join(values)
        assert len(data) == len(values) * kind.byte_width, "ids have the bytes of their type"
    else:
        data = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])
