"""Rows of columns that stand in many pieces: what is taken is what stands there.

Finds: a row taken from another piece, one that is short or long where the way that they are kept
changes, a null that has a value, and a piece that is a slice of more.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kmq_storage.format.scattered import takeable

_LENGTHS = (0, 1, 12, 13, 58, 3_000)


def _rows(seed: int, nulls: bool) -> list[bytes | None]:
    rng = np.random.default_rng(seed)
    chosen = rng.choice(_LENGTHS, 40).tolist()
    return [None if nulls and not n % 3 else rng.bytes(n) for n in chosen]


@pytest.mark.parametrize("nulls", [False, True])
def test_rows_are_taken_from_pieces_in_any_order(nulls: bool):
    pieces = [pa.array(_rows(seed, nulls), pa.binary()) for seed in range(5)]
    column = pa.chunked_array([piece.slice(seed, 33) for seed, piece in enumerate(pieces)])
    order = np.random.default_rng(9).integers(0, len(column), 500)
    assert takeable(column).take(order).equals(column.take(pa.array(order)).combine_chunks())


def test_no_row_is_taken():
    column = pa.chunked_array([pa.array([b"a"], pa.binary())])
    assert takeable(column).take(np.zeros(0, np.int64)).to_pylist() == []


def test_columns_of_other_types_are_taken_too():
    column = pa.chunked_array([[1, None], [3]])
    assert takeable(column).take(np.array([2, 0, 1])).to_pylist() == [3, 1, None]
