"""Assignors: the answers of Kafka's for the same members, and how even and how steady they are.

Finds: another partition than Kafka's range and round robin give, one that nobody or somebody who
does not read its topic gets, loads that differ by more than they must, and moves that nobody needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmq_storage.groups.assignors import (
    ASSIGNORS,
    Assignment,
    assign_range,
    assign_round_robin,
    assign_sticky,
)

#: Partitions per topic; topics per member; what each member gets. As in the tests of Kafka's own
#: RangeAssignor and RoundRobinAssignor, with members 1 and 2 for `consumer1` and `consumer2`.
RANGE = [
    ({}, {1: ""}, {}),
    ({"a": 0}, {1: "a"}, {}),
    ({"a": 3}, {1: "a"}, {1: "a0 a1 a2"}),
    ({"a": 3, "b": 3}, {1: "a"}, {1: "a0 a1 a2"}),
    ({"a": 1, "b": 2}, {1: "ab"}, {1: "a0 b0 b1"}),
    ({"a": 1}, {1: "a", 2: "a"}, {1: "a0"}),
    ({"a": 2}, {1: "a", 2: "a"}, {1: "a0", 2: "a1"}),
    ({"a": 3, "b": 2}, {1: "a", 2: "ab", 3: "a"}, {1: "a0", 2: "a1 b0 b1", 3: "a2"}),
    ({"a": 3, "b": 3}, {1: "ab", 2: "ab"}, {1: "a0 a1 b0 b1", 2: "a2 b2"}),
    ({"a": 4, "b": 3}, {1: "ab", 2: "ab", 3: "b"}, {1: "a0 a1 b0", 2: "a2 a3 b1", 3: "b2"}),
]
ROUND_ROBIN = [
    ({"a": 3}, {1: "a"}, {1: "a0 a1 a2"}),
    ({"a": 1, "b": 2}, {1: "ab"}, {1: "a0 b0 b1"}),
    ({"a": 1}, {1: "a", 2: "a"}, {1: "a0"}),
    ({"a": 2}, {1: "a", 2: "a"}, {1: "a0", 2: "a1"}),
    ({"a": 3, "b": 2}, {1: "a", 2: "ab", 3: "a"}, {1: "a0", 2: "a1 b0 b1", 3: "a2"}),
    ({"a": 3, "b": 3}, {1: "ab", 2: "ab"}, {1: "a0 a2 b1", 2: "a1 b0 b2"}),
]


def _by_member(found: Assignment) -> dict[int, str]:
    by_member: dict[int, list[str]] = {}
    for (topic, number), member in sorted(found.items()):
        by_member.setdefault(member, []).append(f"{topic}{number}")
    return {member: " ".join(spots) for member, spots in sorted(by_member.items())}


def _assigned(
    name: str,
    counts: Mapping[str, int],
    members: Mapping[int, str],
    before: Assignment | None = None,
) -> Assignment:
    readers = {member: frozenset(topics) for member, topics in members.items()}
    shared = {topic: range(count) for topic, count in counts.items()}
    return ASSIGNORS[name](readers, shared, before or {})


@pytest.mark.parametrize(("counts", "members", "expected"), RANGE)
def test_range_gives_what_kafkas_range_assignor_gives(
    counts: dict[str, int], members: dict[int, str], expected: dict[int, str]
):
    assert _by_member(_assigned("range", counts, members)) == expected


@pytest.mark.parametrize(("counts", "members", "expected"), ROUND_ROBIN)
def test_round_robin_gives_what_kafkas_round_robin_assignor_gives(
    counts: dict[str, int], members: dict[int, str], expected: dict[int, str]
):
    assert _by_member(_assigned("roundrobin", counts, members)) == expected


COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
MEMBERS = st.dictionaries(
    st.integers(1, 20), st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6
)


@given(st.sampled_from(sorted(ASSIGNORS)), COUNTS, MEMBERS)
def test_each_partition_that_somebody_reads_goes_to_one_of_its_readers(
    name: str, counts: dict[str, int], members: dict[int, str]
):
    found = _assigned(name, counts, members)
    read = set().union(*members.values())
    assert set(found) == {(t, n) for t, count in counts.items() if t in read for n in range(count)}
    assert all(topic in members[member] for (topic, _), member in found.items())


@given(st.sampled_from(sorted(ASSIGNORS)), st.integers(0, 40), st.integers(1, 9))
def test_members_that_read_one_topic_have_loads_within_one(name: str, count: int, size: int):
    found = _assigned(name, {"a": count}, dict.fromkeys(range(1, size + 1), "a"))
    loads = Counter(found.values())
    assert max(loads.values(), default=0) - min(loads[m] for m in range(1, size + 1)) <= 1


@given(COUNTS, MEMBERS, st.data())
def test_no_partition_of_a_sticky_assignment_could_even_it_out(
    counts: dict[str, int], members: dict[int, str], data: st.DataObject
):
    before = _some_assignment(counts, data)
    found = _assigned("sticky", counts, members, before)
    loads = Counter(dict.fromkeys(members, 0)) + Counter(found.values())
    for (topic, _), member in found.items():
        for other, topics in members.items():
            assert topic not in topics or loads[member] - loads[other] <= 1


def _some_assignment(counts: dict[str, int], data: st.DataObject) -> Assignment:
    spots = [(topic, n) for topic, count in counts.items() for n in range(count)]
    epochs = data.draw(st.lists(st.integers(1, 20), min_size=len(spots), max_size=len(spots)))
    return dict(zip(spots, epochs, strict=True))


@settings(max_examples=200)
@given(st.integers(1, 40), st.lists(st.integers(0, 4), min_size=40, max_size=40))
def test_sticky_moves_as_few_partitions_as_evenness_asks_for(count: int, owners: list[int]):
    """Members 1 to 3 read both topics, 4 came; whose owner is 0 has none."""
    spots = [("a", n) for n in range(count // 3)] + [("b", n) for n in range(count - count // 3)]
    before = {spot: owner for spot, owner in zip(spots, owners, strict=False) if owner}
    counts = {"a": count // 3, "b": count - count // 3}
    found = _assigned("sticky", counts, dict.fromkeys(range(1, 5), "ab"), before)
    moved = sum(found[spot] != epoch for spot, epoch in before.items())
    kept = sorted(Counter(dict.fromkeys(range(1, 5), 0) | Counter(before.values())).values())
    low, extra = divmod(count, 4)
    allowed = sorted([low] * (4 - extra) + [low + 1] * extra)
    # The largest loads may keep the largest shares.
    assert moved == sum(max(0, has - may) for has, may in zip(kept, allowed, strict=True))


@given(st.sampled_from(sorted(ASSIGNORS)), COUNTS, MEMBERS)
def test_what_was_assigned_stays_when_nothing_changes(
    name: str, counts: dict[str, int], members: dict[int, str]
):
    found = _assigned(name, counts, members)
    assert _assigned(name, counts, members, found) == found


def test_partitions_that_are_not_to_be_shared_are_left_out():
    readers = {1: frozenset("a"), 2: frozenset("a")}
    for assign in (assign_range, assign_round_robin, assign_sticky):
        assert set(assign(readers, {"a": [1, 3, 4]}, {})) == {("a", 1), ("a", 3), ("a", 4)}
