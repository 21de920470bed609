"""Finds tasks that lose, repeat or reorder offsets, or are larger than they may be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.datasource.planning.pieces import Pieces, share_of
from kmq_storage.log.index.spread import Spread

#: Records and bytes of each stored batch of a range, and how much of it the bounds cut off.
batches = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10**6)), min_size=1, max_size=8)
read_ranges = st.lists(batches, max_size=6)


def _pieces(ranges: list[list[tuple[int, int]]]) -> Pieces:
    parts = []
    for stored in ranges:
        ends = np.cumsum([records for records, _ in stored])
        records, read = (np.array(column) for column in zip(*stored, strict=True))
        parts.append(Pieces(np.zeros(len(ends), np.int64), ends - records, ends, read, read))
    return Pieces.joined(parts, [1] * len(parts))


def _whole(ranges: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    return [
        (number, offset)
        for number, stored in enumerate(ranges)
        for offset in range(sum(records for records, _ in stored))
    ]


@given(read_ranges, st.integers(1, 20))
def test_balanced_tasks_hold_every_offset_once_and_in_order(
    ranges: list[list[tuple[int, int]]], tasks: int
) -> None:
    runs = _pieces(ranges).balanced(tasks)
    assert len(runs) <= tasks
    held = [(n, offset) for run in runs for n, *at in run for offset in range(*at)]
    assert held == _whole(ranges)


@given(read_ranges, st.integers(1, 10**6))
def test_parts_of_limited_bytes_hold_every_offset_once_and_in_order(
    ranges: list[list[tuple[int, int]]], most: int
) -> None:
    held = [(n, offset) for n, *at in _pieces(ranges).of_bytes(most) for offset in range(*at)]
    assert held == _whole(ranges)


@given(st.lists(st.integers(0, 10**5), min_size=1, max_size=50), st.integers(1, 12))
def test_no_task_exceeds_its_share_by_more_than_an_eighth(sizes: list[int], tasks: int) -> None:
    pieces = _pieces([[(10**6, size)] for size in sizes])
    share = pieces.total / tasks
    for run in pieces.balanced(tasks):
        read = sum(sizes[n] * (end - start) / 10**6 for n, start, end in run)
        rounded = 9 + len(sizes)  # each piece by less than a byte
        assert read <= share * 9 / 8 + rounded


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=9), st.integers(10**4, 10**6))
def test_a_limit_of_bytes_holds_for_parts_and_for_balanced_tasks(
    sizes: list[int], most: int
) -> None:
    pieces = _pieces([[(10**6, size)] for size in sizes])
    for n, start, end in pieces.of_bytes(most):
        assert sizes[n] * (end - start) / 10**6 <= most + 1
    tasks = -(-pieces.total // share_of(most)) or 1
    for run in pieces.balanced(tasks):
        assert sum(sizes[n] * (end - start) / 10**6 for n, start, end in run) <= most + len(sizes)


def test_what_the_bounds_cut_off_counts_in_proportion() -> None:
    columns = ([0, 0], [0, 100], [100, 200], [0, 0], [1_000, 1_000])
    spread = Spread(*map(np.array, columns))
    pieces = Pieces.of(spread, np.array([50]), np.array([110]))
    assert pieces.bytes.tolist() == [500, 100]
    (run,) = pieces.balanced(1)
    assert run.tolist() == [[0, 50, 110]]
