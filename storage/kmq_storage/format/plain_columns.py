"""Conversions between Arrow columns, numpy arrays and plain values that don't import pandas.

The first `pa.array()`, `pa.scalar()` or `to_numpy()` of a process, and the first kernel that is
given a value of Python, import pandas where it is installed, which takes a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from kmq_storage.arrays import Array, Mask, Numbers
from kmq_storage.format.binary_columns import FEW, binary_column

#: The values of one column: numbers, or ids of equal length.
Values: TypeAlias = "Sequence[Any] | Array"


def number_column(numbers: Array, known: Mask | None = None) -> pa.Array:
    """A column of numbers (not copied) or flags; null where `known` is False."""
    kind = pa.from_numpy_dtype(numbers.dtype)
    is_flags = pa.types.is_boolean(kind)
    data = np.packbits(numbers, bitorder="little") if is_flags else np.ascontiguousarray(numbers)
    valid = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(data)])


def numbers_of(column: pa.Array) -> Array:
    """The numbers of a column without nulls, without copying."""
    return cast("Array", np.from_dlpack(column))


def text_column(texts: Sequence[str]) -> pa.Array:
    """A column of texts without nulls."""
    if len(texts) > FEW:
        return pa.array(texts, pa.string())
    return binary_column([text.encode() for text in texts]).view(pa.string())


def flags_of(column: pa.BooleanArray) -> Mask:
    """The flags of a column; null counts as False."""
    if not len(column):  # an empty column may have no buffer
        return np.zeros(0, np.bool_)
    first, spare = divmod(column.offset, 8)
    data = np.frombuffer(column.buffers()[1], np.uint8)[first:]
    bits = np.unpackbits(data, count=spare + len(column), bitorder="little")[spare:]
    flags = bits.view(np.bool_)
    return flags & flags_of(column.is_valid()) if column.null_count else flags


def value_lengths(column: pa.Array) -> Numbers:
    """The length in bytes of each text or value of bytes; 0 for null."""
    import pyarrow.compute as pc  # slow to import, and rarely needed

    lengths = pc.binary_length(column)
    return numbers_of(lengths.fill_null(scalar(0, lengths.type))).astype(np.int64)


def scalar(value: bytes | str | float, kind: pa.DataType | None = None) -> pa.Scalar:
    """A scalar of a value that is not None, of this type or of pyarrow's default type for it."""
    if isinstance(value, str):
        found = text_column([value])[0]
    elif isinstance(value, bytes):
        found = binary_column([value])[0]
    else:
        found = number_column(np.array([value]))[0]
    return found if kind is None else found.cast(kind)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def fixed_batch(columns: Iterable[Values], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of numbers and ids without nulls."""
    arrays = [_fixed_column(*each) for each in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fixed_column(values: Values, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_fixed_size_binary(kind):
        return number_column(np.asarray(values, kind.to_pandas_dtype()))
    data = b"".join(values)
    assert len(data) == len(values) * kind.byte_width, "ids have the bytes of their type"
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])
