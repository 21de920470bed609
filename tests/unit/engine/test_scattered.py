"""Rows of columns that stand in many pieces: what is taken is what stands there.

Finds: a row taken from another piece, one that is short or long where the way that they are kept
changes, a null that has a value, and a piece that is a slice of more.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kmq_storage.format.scattered import PackedNumbers, takeable

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


@pytest.mark.parametrize("lengths", [(58,), (13, 3_000), (0, 12)], ids=["same", "long", "short"])
def test_rows_that_are_all_long_or_all_short_are_taken(lengths: tuple[int, ...]):
    rng = np.random.default_rng(3)
    rows = [[rng.bytes(n) for n in rng.choice(lengths, 20).tolist()] for _ in range(3)]
    pieces = [pa.array([*some, b"between"], pa.binary()).slice(2, 18) for some in rows]
    column = pa.chunked_array([pieces[0], pieces[0].slice(0, 0), *pieces[1:]])
    order = rng.integers(0, len(column), 200)
    assert takeable(column).take(order).equals(column.take(pa.array(order)).combine_chunks())


def test_no_row_is_taken():
    column = pa.chunked_array([pa.array([b"a"], pa.binary())])
    assert takeable(column).take(np.zeros(0, np.int64)).to_pylist() == []


def test_columns_of_other_types_are_taken_too():
    column = pa.chunked_array([[1, None], [3]])
    assert takeable(column).take(np.array([2, 0, 1])).to_pylist() == [3, 1, None]


@pytest.mark.parametrize("step", [1, 1_000_000, 1 << 40], ids=["next", "near", "far"])
def test_instants_are_taken_from_pieces_in_any_order(step: int):
    pieces = [np.arange(n, n + 5) * step - 7 for n in (5, 0, 40)]
    kind = pa.timestamp("us", "UTC")
    column = pa.chunked_array([pa.array(piece).cast(kind) for piece in pieces])
    order = np.array([14, 0, 7, 7, 3], np.uint32)
    assert takeable(column).take(order).equals(column.take(pa.array(order)).combine_chunks())


def test_the_least_and_the_highest_number_there_are_stay_what_they_are():
    ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert PackedNumbers.of([ends, ends[:0]]).take(np.array([1, 0])).tolist() == ends[::-1].tolist()


def test_numbers_that_follow_each_other_are_told_by_the_first():
    assert PackedNumbers(7, None).take(np.array([2, 0], np.uint32)).tolist() == [9, 7]
    assert PackedNumbers.of([]).take(np.zeros(0, np.uint32)).tolist() == []
