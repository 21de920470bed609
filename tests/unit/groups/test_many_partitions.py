"""A member with very many partitions, and many members.

Finds: partitions that are looked for one by one among all the others, members that each go through
what the others own, and groups that each go through the log.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.consuming import consumer, subscription
from kmq_spark.client.consuming.subscription import TopicPartition, by_topic
from kmq_storage.log.index.row_table import RowTable

_PARTITIONS = 200


class _Searched(list[int]):
    """Numbers in which nobody may search."""

    def __contains__(self, number: object) -> bool:
        raise AssertionError(f"{number} is looked for among {len(self)}")


@pytest.fixture
def wide(store: kmq.Store) -> kmq.Store:
    """A topic with many partitions."""
    store.create_topic("t", partitions=_PARTITIONS)
    return store


def test_giving_half_of_many_partitions_away_compares_few_of_them(
    wide: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    compared: list[Any] = []

    def is_equal(one: TopicPartition, other: object) -> bool:
        compared.append(other)
        return tuple.__eq__(one, other)

    with wide.consumer("g", topics=["t"]) as first, wide.consumer("g", topics=["t"]) as second:
        with monkeypatch.context() as patch:
            patch.setattr(TopicPartition, "__eq__", is_equal)
            first.poll()
        second.poll()
        assert len(first.assignment()["t"]) == len(second.assignment()["t"]) == _PARTITIONS // 2
    assert len(compared) < 10 * _PARTITIONS


def test_a_member_goes_through_its_own_partitions_not_through_those_of_all_members(
    wide: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    made: list[Any] = []

    def make(*facts: Any) -> TopicPartition:
        made.append(facts)
        return TopicPartition(*facts)

    with ExitStack() as open_ones:
        members = [open_ones.enter_context(wide.consumer("g", topics=["t"])) for _ in range(20)]
        for member in members:
            member.poll()
        members.pop().close()
        with monkeypatch.context() as patch:
            patch.setattr(subscription, "TopicPartition", make)
            for member in members * 2:
                member.poll()
        numbers = [number for each in members for number in each.assignment()["t"]]
    assert sorted(numbers) == list(range(_PARTITIONS))
    assert len(made) < 10 * _PARTITIONS


def test_committed_offsets_are_found_without_a_search(
    wide: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    def numbers(partitions: Any) -> dict[str, list[int]]:
        return {topic: _Searched(found) for topic, found in by_topic(partitions).items()}

    monkeypatch.setattr(consumer, "by_topic", numbers)
    with wide.consumer("g", topics=["t"]) as member:
        member.commit({"t": {3: 0, 150: 0}})
        assert member.committed() == {"t": {3: 0, 150: 0}}


def test_the_lag_in_bytes_looks_at_no_row_of_the_log_alone(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """There may be as many groups as rows."""
    store.create_topic("t")
    with store.producer() as producer:
        for _ in range(20):
            producer.send_batch("t", [b"12345"] * 4).result()
    for number in range(5):
        store.set_group_offsets(f"g{number}", {"t": {0: number}})
    unpacked: list[int] = []
    row = RowTable.row
    monkeypatch.setattr(RowTable, "row", lambda table, i: unpacked.append(i) or row(table, i))
    lags = [each.lag_bytes["t"][0] for each in store.groups()]
    assert lags == [5 * (80 - number) for number in range(5)]
    assert len(unpacked) <= 5  # the timestamps of those that are read next
