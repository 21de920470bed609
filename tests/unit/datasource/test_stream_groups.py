"""Finds groups that run ahead of a stream, fall behind it, go back, or forget where it began."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.shop import Shop
from tests.unit.datasource.engine import Crash, Stream


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    made.create("orders", 3)
    return made


def test_a_group_follows_the_batches_that_are_finished_and_never_goes_back(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="4", group="billing")
    query = stream.start(available_now=True)
    query.trigger()
    assert shop.committed("billing", "orders") == {0: 0, 1: 0, 2: 0}
    query.trigger(Crash.AFTER_SINK)
    assert shop.committed("billing", "orders") == {0: 4, 1: 0, 2: 0}
    stream.start(available_now=True).all_available()
    assert shop.committed("billing", "orders") == {0: 10, 1: 0, 2: 0}
    stream.stop()
    old = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="1", group="billing")
    old.checkpoint.ends, old.checkpoint.finished = stream.checkpoint.ends[:1], 1
    old.start().trigger()
    assert shop.committed("billing", "orders") == {0: 10, 1: 0, 2: 0}


def test_a_group_resumes_a_query_without_its_checkpoint(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    first = Stream(shop, startingOffsets="earliest", group="billing")
    first.start(available_now=True).all_available()
    first.stop()
    later = [*shop.send("orders", 0, 3), *shop.send("orders", 1, 3)]
    second = Stream(shop, startingOffsets="earliest", group="billing")
    second.start(available_now=True).all_available()
    assert sorted(second.sink.places) == later
    assert shop.committed("billing", "orders") == {0: 13, 1: 3, 2: 0}


@pytest.mark.parametrize("crash", list(Crash))
def test_a_group_keeps_the_first_place_also_when_batch_and_checkpoint_are_lost(
    shop: Shop, crash: Crash
) -> None:
    shop.send("orders", 0, 10)
    first = Stream(shop, group="billing")
    first.start().trigger(crash)
    first.stop()
    between = shop.send("orders", 0, 4)
    again = Stream(shop, group="billing")
    again.start().all_available()
    assert again.sink.places == between


def test_a_group_that_knows_nothing_of_a_topic_begins_where_the_options_say(shop: Shop) -> None:
    shop.create("returns")
    shop.send("orders", 0, 2)
    first = Stream(shop, startingOffsets="earliest", group="g")
    first.start(available_now=True).all_available()
    first.stop()
    shop.grow("orders", 4)
    sent = [*shop.send("orders", 3, 2)]
    shop.send("returns", 0, 5)
    both = Stream(shop, subscribe="orders,returns", group="g")
    both.start().all_available()
    sent += shop.send("returns", 0, 1)
    both.start().all_available()
    assert sorted(both.sink.places) == sorted(sent)


def test_a_checkpoint_goes_before_the_group(shop: Shop) -> None:
    shop.send("orders", 0, 6)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="2", group="g")
    stream.start().trigger()
    stream.stop()
    other = Stream(shop, startingOffsets="earliest", group="g")
    other.start().all_available()
    other.stop()
    stream.start().all_available()
    assert stream.sink.places == shop.places("orders")
