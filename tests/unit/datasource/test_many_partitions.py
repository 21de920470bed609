"""Finds work of a read that grows faster than the partitions and topics that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from kmq_spark.datasource.options.source_options import parse_source_options
from kmq_spark.datasource.options.subscription import Subscription
from kmq_storage.log.index import manifest
from tests.spark.shop import Shop
from tests.unit.datasource.engine import batch_reader

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


def test_a_task_over_many_topics_reads_the_page_that_they_share_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        shop.create(f"t{number}")
        shop.send(f"t{number}", count=2)
    shop.store.checkpoint()
    (task,) = (reader := batch_reader({"path": shop.url, "subscribePattern": "^t"})).partitions()
    decoded: list[Any] = []

    def decode(*given: Any) -> manifest.Page:
        decoded.append(given)
        return decode_page(*given)

    decode_page = manifest.decode_page
    monkeypatch.setattr(manifest, "decode_page", decode)
    assert sum(batch.num_rows for batch in reader.read(task)) == 40
    assert len(decoded) == 1  # it was once for each topic
