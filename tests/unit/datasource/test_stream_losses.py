"""Finds losses that are not told, told without numbers, or counted twice."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kmq_storage.errors import DataLossError
from tests.spark.shop import Shop
from tests.unit.datasource.engine import Crash, Query, Stream, careless, careless_of_any


def _lost(query: Query) -> int:
    number: int = query.reader.reportLatestOffset()["#kmq"]["lost"]
    return number


def test_what_was_trimmed_before_it_was_read_is_counted_once(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("orders", 0, 10)
    stream = careless(shop, maxOffsetsPerTrigger="2")
    query = stream.start()
    query.trigger()
    shop.store.trim("orders", {0: 7})
    query.all_available()
    assert stream.sink.places == [("orders", 0, n) for n in (0, 1, 7, 8, 9)]
    assert _lost(query) == 5
    assert caplog.text.count("the log holds 7 to 10: 5 records are lost") == 1


def test_a_log_that_a_backup_set_back_is_told_and_read_on_from_its_end(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("orders", 0, 5)
    shop.close()
    shutil.copytree(tmp_path / "shop", tmp_path / "backup")
    newer = Shop(tmp_path / "shop")
    newer.send("orders", 0, 5)
    stream = Stream(newer, startingOffsets="earliest")
    stream.start().all_available()
    newer.close()
    (tmp_path / "shop").rename(tmp_path / "old")
    (tmp_path / "backup").rename(tmp_path / "shop")
    with pytest.raises(DataLossError, match=r"the log holds 0 to 5: unless .* set back"):
        stream.start().trigger()
    query = stream.start(failOnDataLoss="false")
    query.all_available()
    assert "records that came since may go unread (failOnDataLoss=false" in caplog.text
    Shop(tmp_path / "shop").send("orders", 0, 2)
    query.all_available()
    assert stream.sizes == [10, 0, 2]


def test_a_trimmed_range_stops_a_stream_that_must_not_lose_and_says_what_is_left(
    shop: Shop,
) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    query = stream.start()
    query.trigger()
    shop.store.trim("orders", {0: 7})
    with pytest.raises(DataLossError, match=r"orders-0: offsets 2 to 10 .* holds 7 to 10"):
        query.trigger()


def test_a_gap_is_counted_in_the_progress_of_the_batch_that_it_is_in(shop: Shop) -> None:
    shop.send("orders", 0, 6)
    shop.cut_out("orders", 0, 3, 5)
    reader = (query := careless(shop, maxOffsetsPerTrigger="2").start()).reader
    start = reader.initialOffset()
    for lost in (0, 1, 2):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert _lost(query) == lost, "Spark asks for it here, before the batch's partitions"
        reader.partitions(start, end)
        assert _lost(query) == lost
        start = end


def test_a_batch_that_would_go_over_a_gap_is_not_planned(shop: Shop) -> None:
    shop.send("orders", 0, 6)
    shop.cut_out("orders", 0, 3, 5)
    stream = Stream(shop, startingOffsets="earliest")
    with pytest.raises(DataLossError, match="orders-0: offsets 3 to 4 were lost"):
        stream.start().trigger()
    assert stream.checkpoint.ends == []


def test_a_replayed_batch_counts_its_loss_with_what_follows_it(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = careless(shop, maxOffsetsPerTrigger="4")
    stream.start().trigger(Crash.AFTER_WAL)
    shop.store.trim("orders", {0: 6})
    query = stream.start()
    query.all_available()
    assert stream.sink.places == [("orders", 0, n) for n in range(6, 10)]
    assert _lost(query) == 6


def test_a_topic_made_again_counts_what_went_unread_and_is_read_from_its_start(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("orders", 0, 10)
    stream = careless(shop, maxOffsetsPerTrigger="4")
    query = stream.start()
    query.trigger()
    shop.delete("orders")
    shop.create("orders", 1)
    again = shop.send("orders", 0, 20)
    query.all_available()
    assert [place for n, batch in stream.sink.batches.items() if n for place in batch] == again
    assert _lost(query) == 6
    assert "made again: 6 of its records went unread (orders-0 from 4)" in caplog.text


def test_what_was_lost_is_not_lost_again_for_the_next_run(shop: Shop) -> None:
    stream = careless(shop)
    shop.create("returns")
    stream.start(subscribe="orders,returns").all_available()
    shop.send("orders", 0, 5)
    shop.send("orders", 1, 4)
    shop.store.trim("orders", {0: 5})
    shop.send("returns", 0, 3)
    shop.delete("returns")
    losses = []
    for _ in range(3):
        query = stream.start()
        query.all_available()
        losses.append(_lost(query))
    assert losses == [8, 8, 8]


def test_a_topic_deleted_before_its_first_record_was_read_counts_what_it_held(shop: Shop) -> None:
    query = careless(shop).start()
    query.trigger()
    shop.send("orders", 0, 6)
    shop.delete("orders")
    shop.create("orders", 1)
    query.all_available()
    assert _lost(query) == 6


def test_a_topic_made_again_while_the_query_was_down_counts_what_went_unread(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = careless(shop, maxOffsetsPerTrigger="4")
    stream.start().trigger()
    stream.stop()
    shop.delete("orders")
    shop.create("orders", 1)
    query = stream.start()
    query.all_available()
    assert _lost(query) == 6


def test_only_what_the_query_read_of_a_deleted_topic_is_lost_to_it(shop: Shop) -> None:
    stream = careless(shop, partitions="1", group="billing")
    shop.send("orders", 1, 2)
    stream.start().all_available()
    for number in range(3):
        shop.send("orders", number, 4)
    stream.stop()
    shop.delete("orders")
    shop.create("orders", 2)
    without_checkpoint = careless(shop, partitions="1", group="billing")
    for each in (without_checkpoint, stream):
        query = each.start()
        query.all_available()
        assert _lost(query) == 4
        each.stop()


def test_a_checkpoint_that_is_used_with_another_store_is_told_that_it_may_be_one(
    shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 5)
    stream = Stream(shop, startingOffsets="earliest")
    stream.start().all_available()
    other = Shop(tmp_path / "other")
    other.create("orders", 3)
    with pytest.raises(DataLossError, match=r"orders.* made again: .*\(or this is another store"):
        stream.start(path=other.url).all_available()
    other.close()


def test_a_new_partition_whose_first_records_are_gone_is_a_loss(shop: Shop) -> None:
    stream = Stream(shop, startingOffsets="earliest")
    shop.send("orders", 0, 1)
    query = stream.start()
    query.all_available()
    shop.grow("orders", 4)
    shop.send("orders", 3, 5)
    shop.store.trim("orders", {3: 2})
    with pytest.raises(DataLossError, match="orders-3: offsets 0 to 5"):
        query.trigger()


def test_topics_come_and_go_under_a_pattern(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    stream = careless(shop)
    stream.options.pop("subscribe")
    stream.options["subscribePattern"] = "^t"
    query = stream.start()
    expected = []
    for number in range(4):
        shop.create(f"t{number}")
        expected += shop.send(f"t{number}", 0, 3)
        query.all_available()
        shop.delete(f"t{number}")
        query.all_available()
    query = stream.start()
    assert not query.trigger()
    assert sorted(stream.sink.places) == expected
    assert "0 of its records went unread" in caplog.text
    assert all(end != "{}" for end in stream.checkpoint.ends)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_available_now_run_whose_partitions_are_lost_fails_and_names_them(
    shop: Shop, fail: str
) -> None:
    shop.send("orders", 0, 10)
    shop.send("orders", 2, 5)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="6", failOnDataLoss=fail)
    query = stream.start(available_now=True)
    query.trigger()
    shop.delete("orders")
    shop.create("orders", 1)
    with pytest.raises(DataLossError, match=r"9 of its .*\(orders-0 from 4, orders-2 from 2\);"):
        query.trigger()
    if fail == "false":
        sent = shop.send("orders", 0, 2)
        stream.start(available_now=True).all_available()
        assert stream.sink.places[-2:] == sent


def test_an_available_now_run_loses_up_to_its_end_and_the_next_one_goes_on_from_there(
    shop: Shop,
) -> None:
    shop.send("orders", 0, 10)
    stream = careless(shop, maxOffsetsPerTrigger="4")
    query = stream.start(available_now=True)
    query.trigger()
    shop.send("orders", 0, 20)
    shop.store.trim("orders", {0: 20})
    query.all_available()
    assert json.loads(stream.checkpoint.ends[-1])["orders"]["0"] == 10
    losses = [_lost(query)]
    query = stream.start(available_now=True)
    query.all_available()
    assert [*losses, _lost(query)] == [6, 16]
    assert stream.sizes == [4, 0, 4, 4, 2]


def test_a_topic_deleted_between_planning_and_reading_is_counted_for_its_batch(
    shop: Shop,
) -> None:
    shop.send("orders", 0, 4)
    stream = careless(shop)
    stream.start().trigger(Crash.AFTER_WAL)
    shop.delete("orders")
    query = stream.start()
    assert query.trigger()
    assert stream.sizes == [0]
    assert _lost(query) == 4


@pytest.mark.parametrize(
    ("fewer", "all_of_it"),
    [
        ({"subscribe": "orders"}, {"subscribe": "orders,returns"}),
        ({"partitions": "1"}, {"partitions": "0-2"}),
    ],
    ids=["topics", "partitions"],
)
def test_a_restart_with_less_is_refused_or_keeps_the_place_of_what_it_leaves_out(
    shop: Shop,
    caplog: pytest.LogCaptureFixture,
    fewer: dict[str, str],
    all_of_it: dict[str, str],
) -> None:
    shop.create("returns")
    stream = Stream(shop, startingOffsets="earliest", **{"subscribe": "orders,returns"} | all_of_it)
    sent = [*shop.send("orders", 0, 3), *shop.send("orders", 1, 2), *shop.send("returns", 0, 4)]
    stream.start().all_available()
    with pytest.raises(DataLossError, match=r"-0 at [34].*: this query was reading there"):
        stream.start(**fewer).trigger()
    query = stream.start(**fewer, failOnDataLoss="false")
    for _ in range(3):
        sent += shop.send("orders", 1, 1)
        query.all_available()
    assert sorted(stream.sink.places) == sorted(sent)
    assert "-0 at " in caplog.text
    sent += [*shop.send("orders", 0, 1), *shop.send("returns", 0, 1)]
    stream.start(**all_of_it, failOnDataLoss="true").all_available()
    assert sorted(stream.sink.places) == sorted(sent)
    assert '"left"' not in stream.checkpoint.ends[-1]


def test_what_a_query_leaves_out_is_forgotten_when_its_topic_is_deleted(shop: Shop) -> None:
    shop.create("returns")
    stream = careless(shop, subscribe="orders,returns")
    shop.send("returns", 0, 4)
    stream.start().all_available()
    stream.start(subscribe="orders")
    shop.send("orders", 0, 1)
    assert stream._running is not None
    stream._running.all_available()
    assert '"left"' in stream.checkpoint.ends[-1]
    shop.delete("returns")
    shop.create("returns")
    again = [*shop.send("returns", 0, 2), *shop.send("orders", 0, 1)]
    stream.start(subscribe="orders,returns", failOnDataLoss="true").all_available()
    assert sorted(stream.sink.batches[2]) == sorted(again)


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "trigger", "trim", "grow", "delete", "restart", "seal"]),
        st.sampled_from(["t0", "t1"]),
        st.integers(0, 3),
        st.integers(1, 9),
    ),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whatever_happens_to_topics_every_record_is_read_once_or_lost_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]]
) -> None:
    shop = Shop(tmp_path_factory.mktemp("any") / "shop")
    (stream, query), sent = careless_of_any(shop), 0
    for action, topic, number, count in steps:
        if topic not in {each.name for each in shop.store.topics()}:
            shop.create(topic, 2)
        partition = number % shop.partitions(topic)
        start, end = shop.store.offsets(topic)[partition]
        if action == "send":
            sent += len(shop.send(topic, partition, count))
        elif action == "trim":
            shop.store.trim(topic, {partition: min(start + count, end)})
        elif action == "grow":
            shop.grow(topic, shop.partitions(topic) + 1)
        elif action == "delete":
            shop.delete(topic)
        elif action == "seal":
            shop.store.seal()
        elif action == "trigger":
            query.trigger()
        else:
            query = stream.start(maxOffsetsPerTrigger=str(count))
    query.all_available()
    assert sum(stream.sizes) + stream.lost == sent
    stream.stop()
    shop.close()
