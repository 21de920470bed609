"""Finds limits that are missed, unfair shares, and partitions that wait for ever."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.datasource.admission import admit

backlogs = st.dictionaries(st.integers(0, 30), st.integers(0, 2**40), max_size=12)


@given(backlogs, st.integers(1, 2**41), st.integers(0, 2**50))
def test_the_sum_is_exact_and_nobody_gets_more_than_there_is(
    waiting: dict[int, int], limit: int, turn: int
) -> None:
    taken = admit(waiting, limit, turn=turn)
    assert taken.keys() == waiting.keys()
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= taken[key] <= waiting[key] for key in waiting)


@given(backlogs, st.integers(1, 2**41))
def test_everybody_who_waits_gets_a_record_when_the_limit_has_room_for_all(
    waiting: dict[int, int], limit: int
) -> None:
    taken = admit(waiting, limit)
    if limit >= sum(size > 0 for size in waiting.values()):
        assert all(taken[key] for key, size in waiting.items() if size)


@given(backlogs, st.integers(1, 2**41))
def test_a_longer_backlog_never_gets_less_than_a_shorter_one_when_there_is_room(
    waiting: dict[int, int], limit: int
) -> None:
    taken = admit(waiting, limit)
    if limit >= len(waiting):
        by_backlog = sorted(waiting, key=lambda key: waiting[key])
        amounts = [taken[key] for key in by_backlog if waiting[key]]
        assert all(b >= a - 1 for a, b in pairwise(amounts))


def test_the_batches_of_kafkas_own_scenario_come_out_exact() -> None:
    assert admit({0: 101, 1: 11, 2: 1}, 10) == {0: 8, 1: 1, 2: 1}
    assert admit({0: 93, 1: 10, 2: 0}, 10) == {0: 9, 1: 1, 2: 0}


def test_a_limit_of_the_largest_long_takes_everything() -> None:
    assert admit({0: 5, 1: 2**62}, 2**63 - 1) == {0: 5, 1: 2**62}


@given(st.integers(2, 20), st.integers(1, 19), st.integers(0, 1_000))
def test_partitions_take_turns_when_a_batch_has_fewer_records_than_partitions(
    partitions: int, limit: int, position: int
) -> None:
    limit = min(limit, partitions - 1)
    waiting = dict.fromkeys(range(partitions), 1_000)
    served = dict.fromkeys(range(partitions), 0)
    for _ in range(partitions):
        taken = admit(waiting, limit, turn=position)
        position += sum(taken.values())
        for key, count in taken.items():
            served[key] += count
            waiting[key] -= count
    assert set(served.values()) == {limit}
