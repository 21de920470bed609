"""Finds work of a read's options that grows faster than the partitions they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.options.subscription import Subscription

_LOOKS = []


@dataclass
class _Numbers:
    """A range of partitions that counts how often it is asked for one."""

    start: int
    stop: int

    def __contains__(self, partition: int) -> bool:
        _LOOKS.append(partition)
        return self.start <= partition < self.stop


def test_each_of_many_named_partitions_is_not_looked_for_in_all_ranges() -> None:
    named = tuple(cast("range", _Numbers(each, each + 1)) for each in range(0, 1000, 2))
    subscription = Subscription(topics=("orders",), numbers=named)
    assert subscription.partitions_of("orders", 1000) == [*range(0, 1000, 2)]
    assert len(_LOOKS) <= 1000  # each in every range, it was half a million


def test_a_range_beyond_the_topics_partitions_names_those_that_are_there() -> None:
    given = {"path": "/shop", "subscribe": "orders", "partitions": "7-999999999,2,999999998"}
    subscription = parse_source_options(given).subscription
    assert subscription.partitions_of("orders", 9) == [2, 7, 8]
