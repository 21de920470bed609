"""Columns and scalars without pandas are those that pyarrow makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kmq_storage.format.plain_columns import (
    flags_of,
    no_rows,
    number_column,
    numbers_of,
    scalar,
    value_lengths,
)
from kmq_storage.format.records import PROPERTIES_TYPE


@pytest.mark.parametrize("kind", ["i8", "u4", "i4", "u8", "f8", "?"])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_a_column_of_numbers_or_flags_is_that_of_pyarrow(kind: str, count: int):
    numbers = (np.arange(3 * count) % 5 // 2).astype(kind)[::3]
    column = number_column(numbers)
    column.validate(full=True)
    assert column.equals(pa.array(numbers))
    back = flags_of(column) if kind == "?" else numbers_of(column)
    assert (back == numbers).all()
    known = np.arange(count) % 3 > 0
    assert number_column(numbers, known).equals(pa.array(numbers, mask=~known))


@pytest.mark.parametrize("first", [0, 1, 7, 8, 21])
def test_a_null_is_no_flag_wherever_a_slice_begins(first: int):
    given = [True, None, False] * 11
    flags = flags_of(pa.array(given, pa.bool_()).slice(first))
    assert flags.tolist() == [bool(each) for each in given[first:]]


@pytest.mark.parametrize(
    "value",
    ["", "täxt", b"", b"\xff", 0, -(2**63), 2**63 - 1, 0.5, float("inf"), True, False],
    ids=repr,
)
def test_a_scalar_is_that_of_pyarrow(value: Any):
    assert scalar(value).equals(pa.scalar(value))


def test_a_scalar_takes_a_type_and_rows_none():
    assert scalar(5, pa.timestamp("us", "UTC")).equals(pa.scalar(5, pa.timestamp("us", "UTC")))
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string())), ("c", PROPERTIES_TYPE)])
    assert no_rows(schema).equals(pa.RecordBatch.from_pylist([], schema))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()], ids=str)
def test_nulls_have_no_length(kind: pa.DataType):
    assert value_lengths(pa.array(["abc", None, ""], kind)).tolist() == [3, 0, 0]
