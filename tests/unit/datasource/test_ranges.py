"""Finds tasks that drop, repeat or starve offsets: Kafka's own vectors, and any ranges at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.datasource.planning.ranges import (
    TASK_BYTES_MAX,
    TASK_BYTES_MIN,
    TASK_BYTES_SPLIT,
    OffsetRange,
    at_most,
    divide,
    task_count,
)


def _ranges(*bounds: tuple[int, int]) -> list[OffsetRange]:
    return [OffsetRange(f"t{number}", 1, *each) for number, each in enumerate(bounds, 1)]


def _told(ranges: list[OffsetRange]) -> list[tuple[str, int, int]]:
    return [(each.topic, each.start, each.end) for each in ranges]


#: The vectors of Spark's KafkaOffsetRangeCalculatorSuite: minPartitions, ranges, expected ranges.
KAFKA_VECTORS = {
    "one range and no wish": (1, [(1, 2)], [("t1", 1, 2)]),
    "an empty range is dropped": (1, [(1, 2), (1, 1)], [("t1", 1, 2)]),
    "n to n": (3, [(1, 2)] * 3, [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)]),
    "1 to n": (4, [(1, 5)], [("t1", 1, 2), ("t1", 2, 3), ("t1", 3, 4), ("t1", 4, 5)]),
    "skewed": (
        4,
        [(1, 5), (1, 21)],
        [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
    ),
    "SPARK-30656: an empty one and the rest split": (
        4,
        [(1, 1), (1, 21)],
        [("t2", 1, 6), ("t2", 6, 11), ("t2", 11, 16), ("t2", 16, 21)],
    ),
    "SPARK-30656: very skewed": (
        4,
        [(1, 2), (1, 1001)],
        [("t1", 1, 2), ("t2", 1, 334), ("t2", 334, 667), ("t2", 667, 1001)],
    ),
    "SPARK-30656: fewer wanted than there are": (
        1,
        [(1, 5), (1, 21)],
        [("t1", 1, 5), ("t2", 1, 21)],
    ),
    "inexact multiple": (3, [(1, 11)], [("t1", 1, 4), ("t1", 4, 7), ("t1", 7, 11)]),
    "empty ranges ignored": (
        4,
        [(1, 5), (1, 21), (1, 1)],
        [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
    ),
    "SPARK-28489: never drop offsets": (
        6,
        [(0, 10), (0, 10), (0, 1)],
        [
            *[("t1", 0, 3), ("t1", 3, 6), ("t1", 6, 10)],
            *[("t2", 0, 3), ("t2", 3, 6), ("t2", 6, 10)],
            ("t3", 0, 1),
        ],
    ),
    "SPARK-36576: no small and 3 large": (
        9,
        [(0, 10_000), (0, 15_000), (0, 20_000)],
        [
            *[("t1", start, start + 5_000) for start in range(0, 10_000, 5_000)],
            *[("t2", start, start + 5_000) for start in range(0, 15_000, 5_000)],
            *[("t3", start, start + 5_000) for start in range(0, 20_000, 5_000)],
        ],
    ),
    "SPARK-36576: 1 small and 2 large": (
        6,
        [(0, 500), (0, 12_000), (0, 15_001)],
        [
            ("t1", 0, 500),
            *[("t2", 0, 6_000), ("t2", 6_000, 12_000)],
            *[("t3", 0, 5_000), ("t3", 5_000, 10_000), ("t3", 10_000, 15_001)],
        ],
    ),
    "SPARK-36576: 2 small and 1 large": (
        6,
        [(0, 1), (0, 1), (0, 10_000)],
        [
            *[("t1", 0, 1), ("t2", 0, 1)],
            *[("t3", start, start + 2_500) for start in range(0, 10_000, 2_500)],
        ],
    ),
    "SPARK-46798: one of three split": (
        4,
        [(0, 1), (0, 1), (0, 2)],
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 1), ("t3", 1, 2)],
    ),
}


@pytest.mark.parametrize("vector", KAFKA_VECTORS.values(), ids=KAFKA_VECTORS.keys())
def test_ranges_are_divided_as_kafkas_calculator_does(
    vector: tuple[int, list[tuple[int, int]], list[tuple[str, int, int]]],
) -> None:
    min_partitions, bounds, expected = vector
    assert _told(divide(_ranges(*bounds), min_partitions)) == expected


bounds = st.tuples(st.integers(0, 10**12), st.integers(-3, 10**6)).map(lambda b: (b[0], sum(b)))


@given(st.lists(bounds, max_size=12), st.integers(1, 40))
def test_divided_ranges_hold_every_offset_once_and_in_order(
    given_bounds: list[tuple[int, int]], min_partitions: int
) -> None:
    whole = _ranges(*given_bounds)
    pieces = divide(whole, min_partitions)
    assert all(piece.size for piece in pieces)
    for each in whole:
        of_this = [piece for piece in pieces if piece.topic == each.topic]
        edges = [each.start, *(piece.end for piece in of_this)]
        assert [piece.start for piece in of_this] == edges[:-1]
        assert edges[-1] == max(each.end, each.start)


def test_a_wish_for_more_tasks_than_records_gives_one_record_to_each_task() -> None:
    assert len(divide(_ranges((0, 3)), 10**9)) == 3


@pytest.mark.parametrize(
    ("total_bytes", "cores", "tasks"),
    [
        (0, 12, 1),
        (TASK_BYTES_MIN - 1, 12, 1),
        (3 * TASK_BYTES_MIN, 12, 3),
        (12 * TASK_BYTES_MIN, 12, 12),
        (TASK_BYTES_SPLIT, 1, 1),
        (TASK_BYTES_SPLIT + 1, 1, 2),
        (40 * TASK_BYTES_SPLIT, 12, 40),
        (100 * TASK_BYTES_SPLIT, 12, 48),
        (48 * TASK_BYTES_MAX + 1, 12, 49),
    ],
)
def test_tasks_are_few_when_tiny_one_per_core_then_four_and_more_when_they_would_be_huge(
    total_bytes: int, cores: int, tasks: int
) -> None:
    assert task_count(total_bytes, cores) == tasks


def test_who_asks_for_larger_tasks_gets_fewer_but_one_for_each_core() -> None:
    assert task_count(100 * TASK_BYTES_MAX, 12, 10 * TASK_BYTES_MAX) == 12
    assert task_count(100 * TASK_BYTES_MAX, 2, 10 * TASK_BYTES_MAX) == 10


#: The vectors of the same suite for maxRecordsPerPartition (and minPartitions): ranges by size.
RECORDS_VECTORS = {
    "exactly as many": (4, 1, [4], [4]),
    "fewer": (4, 1, [3], [3]),
    "more": (4, 1, [5], [2, 3]),
    "several": (20, 1, [39, 49, 59], [19, 20, 16, 16, 17, 19, 20, 20]),
    "more than wanted": (20, 1, [40], [20, 20]),
    "fewer than wanted": (20, 4, [40], [10, 10, 10, 10]),
}


@pytest.mark.parametrize("vector", RECORDS_VECTORS.values(), ids=RECORDS_VECTORS.keys())
def test_ranges_are_split_by_records_before_they_are_divided(
    vector: tuple[int, int, list[int], list[int]],
) -> None:
    max_records, min_partitions, sizes, expected = vector
    whole = _ranges(*((1, 1 + size) for size in sizes))
    pieces = divide(at_most(whole, max_records), min_partitions)
    assert [piece.size for piece in pieces] == expected


@given(st.lists(bounds, max_size=6), st.integers(10**4, 10**6))
def test_no_range_has_more_records_than_a_task_may_have(
    given_bounds: list[tuple[int, int]], max_records: int
) -> None:
    whole = _ranges(*given_bounds)
    pieces = at_most(whole, max_records)
    assert all(0 < piece.size <= max_records for piece in pieces)
    assert sum(piece.size for piece in pieces) == sum(each.size for each in whole)
