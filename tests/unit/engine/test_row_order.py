"""Rows stand in the order of their queues' numbers, those of one queue in their own.

Finds: a row that is put where another one stands, pieces taken for rounds that have two rows of a
queue, and queues that begin elsewhere than their first row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_storage.format import row_order as ordering
from kmq_storage.format.row_order import row_order, sorting

_QUEUES = 9
_NUMBER = st.integers(0, _QUEUES - 1)
#: Who goes round its queues, and who does not.
_PIECES = st.lists(st.lists(_NUMBER, unique=True) | st.lists(_NUMBER), max_size=4)


@pytest.fixture(autouse=True, scope="module")
def _short_pieces() -> Iterator[None]:
    """Also the shortest pieces are gone through one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "_ROUND_ROWS", 1)
        yield


@given(_PIECES, st.lists(st.integers(0, 11), max_size=6))
def test_rows_are_in_the_order_of_queues_and_of_pieces(pieces: list[list[int]], some: list[int]):
    places = [number % len(pieces) for number in some if pieces]
    rows = [queue for place in places for queue in pieces[place]]
    starts, order = row_order([np.array(piece, np.uint32) for piece in pieces], places, _QUEUES)
    assert order.tolist() == sorted(range(len(rows)), key=lambda row: (rows[row], row))
    ordered = sorted(rows)
    assert starts.tolist() == [sum(row < queue for row in ordered) for queue in range(_QUEUES + 1)]


def test_rows_of_rounds_are_not_sorted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ordering, "_sorted", None)
    rounds = [np.array(piece, np.uint32) for piece in ([2, 0], [1, 2])]
    assert row_order(rounds, [0, 1, 0], 3)[1].tolist() == [1, 5, 2, 0, 3, 4]


def test_many_short_pieces_are_not_gone_through_one_by_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ordering, "_ROUND_ROWS", 3)
    monkeypatch.setattr(ordering, "_by_rounds", None)
    short = [np.array(piece, np.uint32) for piece in ([2, 0], [1, 2])]
    assert row_order(short, [0, 1, 0], 3)[1].tolist() == [1, 5, 2, 0, 3, 4]


def test_sorting_keeps_the_order_of_equal_codes():
    codes = np.array([2**31, 0, 70_000, 0, 2**31, 1], np.uint64)
    assert sorting(codes).tolist() == [1, 3, 5, 2, 0, 4]
