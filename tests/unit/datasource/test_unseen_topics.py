"""Finds records that nobody misses: their topic came and went while no query looked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kmq_storage import limits
from kmq_storage.errors import DataLossError
from tests.spark.shop import Shop
from tests.unit.datasource.engine import Query, Stream, batch_reader, careless


def _by_pattern(shop: Shop, pattern: str, **options: str) -> Stream:
    stream = careless(shop, **options)
    del stream.options["subscribe"]
    stream.options["subscribePattern"] = pattern
    return stream


def _come_and_go(shop: Shop, topic: str, records: int) -> None:
    shop.create(topic, 1)
    if records:
        shop.send(topic, 0, records)
    shop.delete(topic)


def _lost(query: Query) -> int:
    number: int = query.reader.reportLatestOffset()["#kmq"]["lost"]
    return number


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_a_topic_that_came_and_went_between_two_looks_is_lost_once(
    shop: Shop, caplog: pytest.LogCaptureFixture, down: bool
) -> None:
    stream = careless(shop)
    shop.send("orders", 0, 5)
    query = stream.start()
    query.all_available()
    shop.delete("orders")
    _come_and_go(shop, "orders", 10)
    shop.create("orders", 1)
    if down:
        with pytest.raises(DataLossError, match="made again: 0 of its records"):
            stream.start(failOnDataLoss="true").trigger()
        query = stream.start(failOnDataLoss="false")
    shop.send("orders", 0, 3)
    query.all_available()
    query.all_available()
    assert (sum(stream.sizes), _lost(query)) == (8, 10)
    assert caplog.text.count("made again: 10 of its records went unread (orders-0 from 0)") == 1
    query = stream.start(failOnDataLoss="true")
    query.all_available()
    assert _lost(query) == 10


@pytest.mark.parametrize("options", [{}, {"minOffsetsPerTrigger": "100"}], ids=["any", "least"])
def test_an_unseen_topic_of_a_pattern_fails_a_query_or_is_counted_over_all_its_runs(
    shop: Shop, options: Mapping[str, str]
) -> None:
    stream = _by_pattern(shop, "^t", **options)
    query = stream.start(failOnDataLoss="true")
    query.trigger()
    _come_and_go(shop, "empty", 0)
    _come_and_go(shop, "t-empty", 0)
    _come_and_go(shop, "other", 2)
    assert not query.trigger()
    _come_and_go(shop, "t-orders", 4)
    with pytest.raises(DataLossError, match=r"Topic.t-orders. .* was deleted: 4 of its records"):
        query.trigger()
    losses = []
    for _ in range(3):
        query = stream.start(failOnDataLoss="false")
        query.all_available()
        losses.append(_lost(query))
    assert losses == [4, 4, 4]
    _come_and_go(shop, "t-orders", 3)
    query.all_available()
    assert _lost(query) == 7
    query = stream.start(failOnDataLoss="true")
    assert not query.trigger()


def test_a_query_owes_nothing_of_topics_that_were_deleted_before_its_start(shop: Shop) -> None:
    _come_and_go(shop, "t0", 4)
    stream = _by_pattern(shop, "^t", group="billing")
    stream.start(failOnDataLoss="true").all_available()
    stream.start().all_available()
    assert stream.sizes == [0]


def test_only_the_covered_partitions_of_an_unseen_topic_are_lost(shop: Shop) -> None:
    stream = careless(shop, partitions="1", group="billing")
    query = stream.start()
    query.all_available()
    shop.delete("orders")
    shop.create("orders", 2)
    shop.send("orders", 0, 5)
    shop.send("orders", 1, 4)
    shop.delete("orders")
    shop.create("orders", 2)
    query.all_available()
    assert _lost(query) == 4


def test_a_group_alone_counts_every_topic_of_the_name_since_the_one_that_it_read(
    shop: Shop,
) -> None:
    shop.send("orders", 0, 5)
    first = careless(shop, group="billing")
    first.start(available_now=True).all_available()
    first.stop()
    shop.send("orders", 0, 2)
    shop.delete("orders")
    _come_and_go(shop, "orders", 10)
    _come_and_go(shop, "orders", 1)
    shop.create("orders", 1)
    shop.send("orders", 0, 3)
    given = {"path": shop.url, "subscribe": "orders", "group": "billing"}
    batch = batch_reader(given | {"startingOffsets": "group"})
    with pytest.raises(DataLossError, match="made again: 2 of its records went unread"):
        batch.partitions()
    losses = []
    for _ in range(2):
        stream = careless(shop, group="billing")
        query = stream.start()
        query.all_available()
        losses.append(_lost(query))
        stream.stop()
    assert losses == [13, 0]


def test_what_others_read_for_the_group_of_an_unseen_topic_is_not_lost(shop: Shop) -> None:
    stream = _by_pattern(shop, "^t", group="billing")
    stream.start().all_available()
    stream.stop()
    shop.create("t0", 1)
    shop.send("t0", 0, 7)
    shop.commit("billing", "t0", {0: 5})
    shop.delete("t0")
    query = stream.start()
    query.all_available()
    assert _lost(query) == 2


def test_of_unseen_topics_those_that_are_remembered_count(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    _come_and_go(shop, "t0", 1)
    stream = _by_pattern(shop, "^t")
    query = stream.start()
    query.all_available()
    monkeypatch.setattr(limits, "GONE_OFFSETS_REMEMBERED", 2)
    for count in (2, 4, 8):
        _come_and_go(shop, "t0", count)
    query.all_available()
    assert _lost(query) == 12


def test_a_checkpoint_of_an_older_version_owes_nothing_of_what_it_could_not_note(
    shop: Shop,
) -> None:
    stream = _by_pattern(shop, "^t")
    stream.start().all_available()
    offset: dict[str, Any] = json.loads(stream.checkpoint.ends[-1])
    del offset["#kmq"]["deleted"]
    stream.checkpoint.ends[-1] = json.dumps(offset)
    _come_and_go(shop, "t0", 4)
    query = stream.start(failOnDataLoss="true")
    assert not query.trigger()
    shop.create("t1", 1)
    query.all_available()
    _come_and_go(shop, "t0", 4)
    with pytest.raises(DataLossError, match="4 of its records"):
        query.trigger()
