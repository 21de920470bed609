"""Finds lost, repeated and skipped records over restarts, crashes and replays, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kmq_storage.errors import (
    DataLossError,
    FormatVersionError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from tests.spark.shop import Shop
from tests.unit.datasource.engine import ALL, Crash, Stream, stream_reader


def test_a_stream_begins_at_the_end_unless_told_otherwise(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop)
    query = stream.start()
    query.all_available()
    later = shop.send("orders", 1, 3)
    query.all_available()
    assert stream.sink.places == later


def test_records_between_two_questions_for_the_first_offset_are_not_lost(shop: Shop) -> None:
    stream = Stream(shop)
    query = stream.start()
    assert query.reader.initialOffset() == query.reader.initialOffset()
    query.trigger()
    sent = shop.send("orders", 0, 2)
    query.reader.initialOffset()
    query.all_available()
    assert stream.sink.places == sent


def test_a_stream_sees_a_transaction_when_it_is_committed_and_never_one_that_was_aborted(
    shop: Shop,
) -> None:
    stream = Stream(shop, startingOffsets="earliest")
    query = stream.start()
    with shop.store.producer() as producer:
        for end in (producer.commit_transaction, producer.abort_transaction) * 2:
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send("orders", end.__name__, partition=partition)
            shop.send("orders", 0)
            query.all_available()
            end()
            query.all_available()
    assert sorted(stream.sink.places) == shop.places("orders")
    assert [len(rows) for rows in stream.sink.batches.values() if rows] == [1, 2, 1, 1, 2, 1]


@pytest.mark.parametrize("crash", [Crash.AFTER_WAL, Crash.AFTER_READ, Crash.AFTER_SINK])
def test_a_first_batch_that_failed_begins_at_the_same_place_again(shop: Shop, crash: Crash) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop)
    stream.start().trigger(crash)
    between = shop.send("orders", 0, 4)
    stream.start().all_available()
    assert stream.sink.places == between


@pytest.mark.parametrize("options", [{}, {"startingOffsets": "earliest"}, {"group": "g"}])
def test_a_stream_without_records_runs_its_first_batch_and_no_other_empty_one(
    shop: Shop, options: dict[str, str]
) -> None:
    stream = Stream(shop, **options)
    for _ in range(2):
        stream.start().all_available()
    assert stream.sizes == [0]


def test_a_first_offset_may_be_given_for_every_partition(shop: Shop) -> None:
    for partition in range(3):
        shop.send("orders", partition, 10)
    stream = Stream(shop, startingOffsets='{"orders":{"0":7,"1":-1,"2":-2}}')
    stream.start().all_available()
    later = shop.send("orders", 1, 1)
    stream.start().all_available()
    assert [place for place in stream.sink.places if place[1] == 1] == later
    untouched = [("orders", 2, n) for n in range(10)]
    assert sorted(stream.sink.places) == [
        *[("orders", 0, n) for n in range(7, 10)],
        *later,
        *untouched,
    ]


def test_offsets_must_name_every_partition_and_lie_in_the_log(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    with pytest.raises(InvalidRequestError, match=r"must name every partition.*assigned"):
        Stream(shop, startingOffsets='{"orders":{"0":1}}').start().trigger()
    with pytest.raises(OffsetOutOfRangeError, match="orders-0: offset 11 is outside the log"):
        Stream(shop, startingOffsets='{"orders":{"0":11,"1":0,"2":0}}').start().trigger()


def test_limits_share_out_records_exactly_and_once_ignores_them(shop: Shop) -> None:
    shop.send("orders", 0, 101)
    shop.send("orders", 1, 11)
    shop.send("orders", 2, 1)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query = stream.start()
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(10)
    query.trigger()
    query.trigger()
    by_partition = [
        [sum(place[1] == p for place in stream.sink.batches[batch]) for p in range(3)]
        for batch in range(2)
    ]
    assert by_partition == [[8, 1, 1], [9, 1, 0]]
    query.all_available(ALL)
    assert stream.sizes == [10, 10, 93]
    assert sorted(stream.sink.places) == shop.places("orders")


def test_a_restart_may_bring_another_limit(shop: Shop) -> None:
    shop.send("orders", 0, 20)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    stream.start().trigger()
    stream.start(maxOffsetsPerTrigger="8").all_available()
    assert stream.sizes == [4, 8, 8]
    assert stream.sink.places == shop.places("orders")


def test_available_now_ends_where_the_log_ended_when_it_first_looked(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query = stream.start(available_now=True)
    query.trigger()
    shop.send("orders", 0, 50)
    shop.grow("orders", 4)
    shop.send("orders", 3, 5)
    query.all_available()
    assert stream.sizes == [4, 4, 2]
    stream.start(available_now=True).all_available()
    assert sorted(stream.sink.places) == shop.places("orders")


def test_available_now_on_an_empty_topic_ends(shop: Shop) -> None:
    for start in ("earliest", "latest"):
        stream = Stream(shop, startingOffsets=start)
        stream.start(available_now=True).all_available()
        assert stream.sink.places == []


def test_available_now_replays_an_old_batch_after_partitions_were_added(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop, startingOffsets="earliest")
    stream.start().trigger(Crash.AFTER_WAL)
    shop.grow("orders", 5)
    shop.send("orders", 4, 5)
    stream.start(available_now=True).all_available()
    assert sorted(stream.sink.places) == shop.places("orders")


def test_later_partitions_and_topics_are_read_from_their_start(shop: Shop) -> None:
    shop.create("orders.eu", 1)
    stream = Stream(shop)
    stream.options.pop("subscribe")
    stream.options["subscribePattern"] = "^orders"
    query = stream.start()
    query.all_available()
    shop.grow("orders", 4)
    shop.create("orders.us", 2)
    shop.create("returns", 1)
    sent = [*shop.send("orders", 3, 2), *shop.send("orders.us", 1, 2)]
    shop.send("returns", 0, 1)
    query.all_available()
    assert sorted(stream.sink.places) == sorted(sent)


def test_a_pattern_that_matches_nothing_yet_reads_the_first_topic_from_its_start(
    shop: Shop,
) -> None:
    stream = Stream(shop)
    stream.options.pop("subscribe")
    stream.options["subscribePattern"] = "^later$"
    stream.start().all_available()
    shop.create("later")
    sent = shop.send("later", 0, 3)
    stream.start().all_available()
    assert stream.sink.places == sent


def test_what_a_repair_cut_out_stops_the_stream_or_is_left_out(shop: Shop) -> None:
    sent = shop.send("orders", 0, 4) + shop.send("orders", 0, 3) + shop.send("orders", 0, 3)
    shop.cut_out("orders", 0, 4, 7)
    stream = Stream(shop, startingOffsets="earliest")
    with pytest.raises(DataLossError, match="offsets 4 to 6 were lost"):
        stream.start().all_available()
    stream.start(failOnDataLoss="false").all_available()
    assert stream.sink.places == sent[:4] + sent[7:]


def test_a_topic_that_was_made_again_is_recognised_though_it_holds_more(shop: Shop) -> None:
    shop.send("orders", 0, 3)
    stream = Stream(shop, startingOffsets="earliest")
    stream.start().all_available()
    shop.delete("orders")
    shop.create("orders", 3)
    again = shop.send("orders", 0, 50)
    with pytest.raises(DataLossError, match=r"Topic\[orders\] .* was deleted and made again"):
        stream.start().trigger()
    stream.start(failOnDataLoss="false").all_available()
    assert stream.sink.batches[1] == again


def test_a_topic_that_was_deleted_stops_the_stream_or_is_left_out(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.create("returns")
    shop.send("orders", 0, 3)
    stream = Stream(shop, startingOffsets="earliest", subscribe="orders,returns")
    stream.start().all_available()
    shop.delete("orders")
    with pytest.raises(DataLossError, match=r"Topic\[orders\] .* was deleted: 0 of its records"):
        stream.start().trigger()
    for _ in range(3):
        stream.start(failOnDataLoss="false").all_available()
    assert caplog.text.count("was deleted: 0 of its records") == 1
    sent = shop.send("returns", 0, 2)
    stream.start().all_available()
    assert [batch for batch in stream.sink.batches.values() if batch][1:] == [sent]
    assert len(stream.sink.batches) == 3, "one without records, which leaves the topic out"
    assert all("ids" in json.loads(end)["#kmq"] for end in stream.checkpoint.ends)


def test_a_planned_batch_whose_topic_is_gone_is_data_loss(shop: Shop) -> None:
    shop.send("orders", 0, 3)
    stream = Stream(shop, startingOffsets="earliest")
    stream.start().trigger(Crash.AFTER_WAL)
    shop.delete("orders")
    shop.create("orders", 3)
    sent = shop.send("orders", 0, 5)
    with pytest.raises(DataLossError, match="deleted and made again"):
        stream.start().trigger()
    stream.start(failOnDataLoss="false").all_available()
    assert stream.sink.places == sent


@pytest.mark.parametrize("fail", ["true", "false"])
def test_available_now_fails_when_a_topic_it_promised_to_read_is_made_again(
    shop: Shop, fail: str
) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="4", failOnDataLoss=fail)
    query = stream.start(available_now=True)
    query.trigger()
    shop.delete("orders")
    shop.create("orders", 1)
    with pytest.raises(DataLossError, match="deleted and made again"):
        query.trigger()


def test_a_poll_with_nothing_new_writes_nothing(shop: Shop) -> None:
    shop.send("orders", 0, 2)
    query = Stream(shop, startingOffsets="earliest", group="g").start()
    query.all_available()
    lsn = shop.lsn()
    for _ in range(3):
        assert not query.trigger()
    assert shop.lsn() == lsn


def test_the_offset_of_a_newer_version_is_refused(shop: Shop) -> None:
    reader = stream_reader({"path": shop.url, "subscribe": "orders"})
    with pytest.raises(FormatVersionError, match="version is 7"):
        reader.latestOffset({"#kmq": {"version": 7}}, ReadAllAvailable())


def test_an_unknown_topic_and_an_unknown_store_are_errors(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"Topic\[nowhere\] doesn't exist"):
        Stream(shop, subscribe="nowhere").start().trigger()
    with pytest.raises(NotFoundError, match=r"Store\[.*\] doesn't exist"):
        Stream(shop, path=str(tmp_path / "nowhere")).start().trigger()


actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("trigger"), st.sampled_from([None, *Crash])),
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("grow")),
    ),
    max_size=25,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions,
    st.sampled_from(["earliest", "latest"]),
    st.sampled_from([None, "1", "3"]),
    st.booleans(),
)
def test_any_order_of_sends_crashes_and_restarts_reads_every_record_once(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[Any, ...]],
    starting: str,
    limit: str | None,
    grouped: bool,
) -> None:
    shop = Shop(tmp_path_factory.mktemp("any") / "shop")
    shop.create("orders", 1)
    before = shop.send("orders", 0, 5)
    stream = Stream(shop, startingOffsets=starting)
    stream.options |= {"maxOffsetsPerTrigger": limit} if limit else {}
    stream.options |= {"group": "g"} if grouped else {}
    query = stream.start()
    # A `latest` stream begins when its first end is in the checkpoint, not earlier.
    query.trigger()
    for action, *arguments in steps:
        if action == "send":
            shop.send("orders", arguments[0] % shop.partitions("orders"), arguments[1])
        elif action == "grow":
            shop.grow("orders", shop.partitions("orders") + 1)
        elif action == "trigger" and arguments[0] is None:
            query.trigger()
        else:
            if action == "trigger":
                query.trigger(arguments[0])
            query = stream.start(available_now=action == "restart" and bool(arguments[0]))
    stream.start().all_available()
    expected = (
        shop.places("orders")
        if starting == "earliest"
        else [place for place in shop.places("orders") if place not in before]
    )
    assert sorted(stream.sink.places) == expected
    if grouped:
        committed = shop.committed("g", "orders")
        offsets = shop.store.offsets("orders")
        assert {p: committed.get(p, 0) for p in offsets} == {
            p: end for p, (_, end) in offsets.items()
        }
