"""Finds limits that are missed, unfair shares, and partitions that wait for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.datasource.streams import admission
from kmq_spark.datasource.streams.admission import Limits

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Even:
    """Records that all weigh the same."""

    records: int
    weight: int = 1

    @property
    def about(self) -> int:
        return self.records * self.weight

    def cut(self, records: int) -> Even:
        return Even(records, self.weight)

    def first(self) -> int:
        return self.weight

    def within(self, budget: int) -> tuple[int, int]:
        fitting = min(budget // self.weight, self.records)
        return fitting, fitting * self.weight


@dataclass(frozen=True)
class Uneven:
    """Records of these weights, which nobody knows beforehand."""

    weights: tuple[int, ...]
    about: int

    @property
    def records(self) -> int:
        return len(self.weights)

    def cut(self, records: int) -> Uneven:
        return Uneven(self.weights[:records], self.about * records // self.records)

    def first(self) -> int:
        return self.weights[0]

    def within(self, budget: int) -> tuple[int, int]:
        sums = [0, *accumulate(self.weights)]
        fitting = sum(total <= budget for total in sums) - 1
        return fitting, sums[fitting]


class Columns:
    """Partitions of which each has a record at least, as the real thing shows them."""

    def __init__(self, each: list[Even | Uneven]) -> None:
        self._each = each
        self.records = _column([one.records for one in each])
        self.about = _column([one.about for one in each])

    def cut(self, records: Numbers) -> Columns:
        cut = zip(self._each, records.tolist(), strict=True)
        return Columns([one.cut(count) for one, count in cut])

    def firsts(self) -> Numbers:
        return _column([one.first() for one in self._each])

    def within(self, places: Numbers, budgets: Numbers) -> tuple[Numbers, Numbers]:
        asked = zip(places.tolist(), budgets.tolist(), strict=True)
        found = [self._each[place].within(budget) for place, budget in asked]
        return _column([records for records, _ in found]), _column([size for _, size in found])


def _column(values: list[int]) -> Numbers:
    return np.array(values, np.int64)


def take(
    waiting: Mapping[int, Even] | Mapping[int, Uneven], limits: Limits, *, turn: int = 0
) -> dict[int, int]:
    """What is taken of each partition; of an empty one, nothing."""
    filled = [key for key in waiting if waiting[key].records]
    columns = Columns([waiting[key] for key in filled])
    taken = admission.take(columns, limits, turn=turn).tolist()
    return dict.fromkeys(waiting, 0) | dict(zip(filled, taken, strict=True))


backlogs = st.dictionaries(st.integers(0, 30), st.integers(0, 2**40), max_size=12)
uneven = st.dictionaries(
    st.integers(0, 9),
    st.builds(
        Uneven,
        st.lists(st.integers(1, 1_000), min_size=1, max_size=20).map(tuple),
        st.integers(1, 50_000),
    ),
    min_size=1,
    max_size=6,
)


def _take(waiting: dict[int, int], limit: int, turn: int = 0) -> dict[int, int]:
    even = {key: Even(size) for key, size in waiting.items()}
    return take(even, Limits(records=limit), turn=turn)


@given(backlogs, st.integers(1, 2**41), st.integers(0, 2**50))
def test_the_sum_is_exact_and_nobody_gets_more_than_there_is(
    waiting: dict[int, int], limit: int, turn: int
) -> None:
    taken = _take(waiting, limit, turn)
    assert taken.keys() == waiting.keys()
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[key] <= waiting[key] for key in waiting)


@given(backlogs, st.integers(1, 2**41))
def test_everybody_who_waits_gets_a_record_when_the_limit_has_room_for_all(
    waiting: dict[int, int], limit: int
) -> None:
    taken = _take(waiting, limit)
    if limit >= sum(size > 0 for size in waiting.values()):
        assert all(taken[key] for key, size in waiting.items() if size)


@given(backlogs, st.integers(1, 2**41))
def test_a_longer_backlog_never_gets_less_than_a_shorter_one_when_there_is_room(
    waiting: dict[int, int], limit: int
) -> None:
    taken = _take(waiting, limit)
    if limit >= len(waiting):
        by_backlog = sorted(waiting, key=lambda key: waiting[key])
        amounts = [taken[key] for key in by_backlog if waiting[key]]
        assert all(b >= a - 1 for a, b in pairwise(amounts))


def test_the_batches_of_kafkas_own_scenario_come_out_exact() -> None:
    assert _take({0: 101, 1: 11, 2: 1}, 10) == {0: 8, 1: 1, 2: 1}
    assert _take({0: 93, 1: 10, 2: 0}, 10) == {0: 9, 1: 1, 2: 0}


def test_a_limit_of_the_largest_long_takes_everything() -> None:
    assert _take({0: 5, 1: 2**62}, 2**63 - 1) == {0: 5, 1: 2**62}


@given(st.integers(2, 20), st.integers(1, 19), st.integers(0, 1_000), st.booleans())
def test_partitions_take_turns_when_a_batch_has_no_room_for_a_record_of_each(
    partitions: int, limit: int, position: int, by_bytes: bool
) -> None:
    limit = min(limit, partitions - 1)
    limits = Limits(bytes=limit * 7 + 3) if by_bytes else Limits(records=limit)
    waiting = dict.fromkeys(range(partitions), 1_000)
    served = dict.fromkeys(range(partitions), 0)
    for _ in range(partitions):
        even = {key: Even(size, 7) for key, size in waiting.items()}
        taken = take(even, limits, turn=position)
        position += sum(taken.values())
        for key, count in taken.items():
            served[key] += count
            waiting[key] -= count
    assert set(served.values()) == {limit}


@given(uneven, st.integers(1, 20_000), st.none() | st.integers(1, 50), st.integers(0, 99))
def test_both_limits_hold_together_and_one_record_always_goes_through(
    waiting: dict[int, Uneven], size: int, records: int | None, turn: int
) -> None:
    taken = take(waiting, Limits(records=records, bytes=size), turn=turn)
    total = sum(taken.values())
    weight = sum(sum(waiting[key].weights[:count]) for key, count in taken.items())
    assert total >= 1
    assert records is None or total <= records
    assert weight <= size or total == 1
    assert all(count <= waiting[key].records for key, count in taken.items())


@given(uneven, st.integers(0, 99))
def test_bytes_that_have_room_for_everything_take_everything(
    waiting: dict[int, Uneven], turn: int
) -> None:
    total = sum(sum(each.weights) for each in waiting.values())
    taken = take(waiting, Limits(bytes=total * len(waiting) * 1_000), turn=turn)
    assert taken == {key: each.records for key, each in waiting.items()}


@given(st.integers(2, 9), st.integers(1, 100), st.integers(1, 1_000))
def test_bytes_are_used_up_to_one_record_of_each_partition(
    partitions: int, weight: int, most: int
) -> None:
    waiting = {key: Even((key + 1) * 1_000, weight) for key in range(partitions)}
    size = partitions * weight * most // 10 + partitions * weight
    taken = take(waiting, Limits(bytes=size))
    assert size - partitions * weight < sum(taken.values()) * weight <= size


def test_fewer_records_than_the_least_are_left_waiting() -> None:
    waiting = {0: Even(3), 1: Even(2)}
    assert take(waiting, Limits(least=6)) == {0: 0, 1: 0}
    assert take(waiting, Limits(least=5, records=4)) == {0: 2, 1: 2}
    assert take({}, Limits()) == {}
