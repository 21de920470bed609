"""Columns of one value."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from kmq_spark.client.records.constant_columns import constant

_CODE = """
import sys, pyarrow
from kmq_spark.client.records.constant_columns import constant
constant("orders", pyarrow.string(), 9), constant(3, pyarrow.int32(), 9)
sys.exit("pandas" in sys.modules)
"""


@pytest.mark.parametrize("rows", [0, 1, 5, 64])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("orders", pa.string()),
        ("", pa.string()),
        (-7, pa.int32()),
        (2**40, pa.int64()),
        (None, pa.string()),
    ],
)
def test_every_row_has_the_value(value: str | int | None, kind: pa.DataType, rows: int):
    column = constant(value, kind, rows)
    column.validate(full=True)
    assert column.equals(pa.array([value] * rows, kind))


def test_making_one_imports_no_pandas():
    subprocess.run([sys.executable, "-c", _CODE], check=True)
