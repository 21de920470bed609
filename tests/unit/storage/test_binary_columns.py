"""Binary columns made of buffers. Finds: rows that are cut elsewhere, and nulls that are empty."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kmq_storage.format.binary_columns import binary_column


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None],
        [b""],
        [b"a", None, b"", b"bc"],
        [None] * 9 + [b"x"],
        [b"\xff" * 3, b"\0"] * 20,
        [b"many", None] * 200,
    ],
)
def test_a_column_has_the_values_and_nulls_of_its_list(values: list[bytes | None]):
    column = binary_column(values)
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.binary()))
    assert column.null_count == values.count(None)
