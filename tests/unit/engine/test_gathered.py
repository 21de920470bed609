"""Ranges of rows that are copied out of pieces: what comes is what stands there.

Finds: a range of another piece or with a row too many, one that is wrong where it is short, and a
piece that is a slice of more, or empty.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kmq_storage.format.gathered import gathered, rearranged

_LENGTHS = (0, 1, 12, 13, 58, 3_000)


def _column(lengths: tuple[int, ...]) -> pa.ChunkedArray:
    rng = np.random.default_rng(len(lengths))
    rows = [rng.bytes(int(length)) for length in rng.choice(lengths, 90)]
    whole = pa.array([b"before", *rows, b"behind"], pa.binary())
    none = pa.array([], pa.binary())
    return pa.chunked_array([none, whole.slice(1, 40), none, whole.slice(41, 50), none])


@pytest.mark.parametrize("lengths", [_LENGTHS, (0, 1), (0,), (58,)])
def test_ranges_are_copied_whole_wherever_they_stand(lengths: tuple[int, ...]):
    column = _column(lengths)
    firsts, counts = np.array([0, 3, 39, 40, 40, 7, 89]), np.array([3, 36, 1, 1, 50, 2, 1])
    found = gathered(column.chunks, firsts, counts).column()
    expected = [
        row
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True)
        for row in column.slice(first, count).to_pylist()
    ]
    assert found.to_pylist() == expected


@pytest.mark.parametrize("lengths", [_LENGTHS, (0, 1), (58,)])
@pytest.mark.parametrize("copied", [False, True])
def test_ranges_of_several_parts_change_places(lengths: tuple[int, ...], copied: bool):
    column = _column(lengths)
    # Of three ranges, of which the second one goes on in another part.
    parts = [([2, 30], [5, 10]), ([40, 60], [1, 20])]
    counts = np.array([5, 11, 20])
    found = [gathered(column.chunks, np.array(some), np.array(of)) for some, of in parts]
    pieces = [each.copied() if copied else each for each in found]
    rows = [*range(60, 80), *range(2, 7), *range(30, 41)]
    order = np.array([2, 0, 1])
    expected = column.take(pa.array(rows)).to_pylist()
    assert rearranged(pieces, counts, order).column().to_pylist() == expected


def test_of_nothing_nothing_is_copied():
    none = np.zeros(0, np.int64)
    for pieces in ([], [pa.array([b"a"])]):
        assert gathered(pieces, none, none).column().to_pylist() == []
    assert rearranged([], none, none).column().to_pylist() == []
