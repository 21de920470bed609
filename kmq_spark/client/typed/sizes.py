"""The bytes of the own columns of typed records, row by row, for columns of any type.

A value counts what it holds: numbers, instants and the like their width (a bool one byte), text
and bytes their length, lists, maps and structs the sum of what is inside, a null nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types

from kmq_spark.client.records.beneath import beneath
from kmq_storage.format.plain_columns import flags_of, numbers_of, value_lengths

if TYPE_CHECKING:
    import numpy.typing as npt

Sizes: TypeAlias = "npt.NDArray[np.int64]"


def value_sizes(column: pa.Array) -> Sizes:
    """The bytes of every row of a column."""
    kind = column.type
    if types.is_struct(kind):
        parts = column.flatten()  # each null where its struct is
        sizes: Sizes = np.sum([value_sizes(part) for part in parts] or [_none(column)], axis=0)
        return sizes
    if types.is_fixed_size_list(kind):
        return _fixed_lists(column)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return _lists(column)
    if types.is_null(kind):
        return _none(column)
    if _has_lengths(kind):
        return value_lengths(column)
    widths: Sizes = _valid(column) * max(kind.bit_width // 8, 1)
    return widths


def _has_lengths(kind: pa.DataType) -> bool:
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
    )


def _none(column: pa.Array) -> Sizes:
    return np.zeros(len(column), np.int64)


def _valid(column: pa.Array) -> Sizes:
    if not column.null_count:
        return np.ones(len(column), np.int64)
    valid: Sizes = flags_of(column.is_valid()).astype(np.int64)
    return valid


def _lists(column: Any) -> Sizes:
    offsets = numbers_of(column.offsets)
    inside = np.sum([value_sizes(part) for part in beneath(column)], axis=0)
    ends = np.concatenate([[0], np.cumsum(inside)])[offsets - offsets[0]]
    sizes: Sizes = np.diff(ends) * _valid(column)  # a null may have items beneath it
    return sizes


def _fixed_lists(column: Any) -> Sizes:
    length, rows = column.type.list_size, len(column)
    if not length:
        return _none(column)
    sizes: Sizes = value_sizes(*beneath(column)).reshape(rows, length).sum(axis=1) * _valid(column)
    return sizes
