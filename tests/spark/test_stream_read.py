"""Finds records that a real query loses or repeats: restarts, failed batches, triggers, groups."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.running import Collector, forget_last_commit, load, run, start
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


def test_available_now_reads_in_batches_of_the_limit_and_ends(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 10)
    sink = Collector()
    frame = load(spark, shop, maxOffsetsPerTrigger=2, group="billing")
    query = run(frame, sink, tmp_path / "checkpoint")
    assert sink.sizes == [2, 2, 2, 2, 2]
    assert [each.numInputRows for each in query.recentProgress] == sink.sizes
    assert sink.places == shop.places("orders")
    end = json.loads(query.lastProgress.sources[0].endOffset)
    assert end["orders"] == {"0": 10, "1": 0, "2": 0}
    assert shop.committed("billing", "orders") == {0: 10, 1: 0, 2: 0}
    assert shop.store.describe_group("billing").lag["orders"] == {0: 0, 1: 0, 2: 0}


def test_restarts_and_replays_read_every_record_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    sink, checkpoint = Collector(), tmp_path / "checkpoint"
    for attempt in range(5):
        shop.send("orders", attempt % 3, 3)
        run(load(spark, shop, maxOffsetsPerTrigger=2 + attempt), sink, checkpoint)
        if attempt % 2:
            forget_last_commit(checkpoint)
    assert sink.places == shop.places("orders")


def test_a_first_batch_that_fails_begins_at_the_same_place_again(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 5)
    checkpoint = tmp_path / "checkpoint"

    def fail(frame: DataFrame, number: int) -> None:
        raise RuntimeError("the sink is broken")

    query = start(load(spark, shop, startingOffsets="latest"), fail, checkpoint)
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        query.awaitTermination(120)
    between = shop.send("orders", 0, 4)
    sink = Collector()
    run(load(spark, shop, startingOffsets="latest"), sink, checkpoint)
    assert sink.places == between


def test_a_running_query_sees_new_records_new_partitions_and_new_topics(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    sent = shop.send("orders", 0, 5)
    sink = Collector()
    reader = spark.readStream.format("kmq").option("startingOffsets", "earliest")
    frame = reader.option("subscribePattern", "^orders").load(shop.url)
    query = start(frame, sink, tmp_path / "checkpoint", processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert sink.places == sent
        shop.grow("orders", 4)
        shop.create("orders.eu")
        sent += [*shop.send("orders", 3, 2), *shop.send("orders.eu", 0, 2)]
        query.processAllAvailable()
        assert sink.places == sorted(sent)
        batches = len(sink.batches)
        query.processAllAvailable()
        assert len(sink.batches) == batches
    finally:
        query.stop()


def test_once_takes_everything_in_one_batch(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 10)
    sink = Collector()
    frame = load(spark, shop, maxOffsetsPerTrigger=2)
    assert start(frame, sink, tmp_path / "checkpoint", once=True).awaitTermination(120)
    assert sink.sizes == [10]


def test_a_group_resumes_a_query_whose_checkpoint_is_gone(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 5)
    run(load(spark, shop, group="billing"), Collector(), tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")
    later = shop.send("orders", 0, 3)
    sink = Collector()
    run(load(spark, shop, group="billing"), sink, tmp_path / "checkpoint")
    assert sink.places == later
    shop.delete_group("billing")
    again = Collector()
    run(load(spark, shop, group="billing"), again, tmp_path / "another")
    assert again.places == shop.places("orders")


def test_a_topic_that_was_made_again_is_recognised(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 3)
    sink, checkpoint = Collector(), tmp_path / "checkpoint"
    run(load(spark, shop), sink, checkpoint)
    shop.delete("orders")
    shop.create("orders", 3)
    again = shop.send("orders", 0, 20)
    with pytest.raises(
        StreamingQueryException, match=r"DataLossError: Topic.orders. .* made again"
    ):
        run(load(spark, shop), sink, checkpoint)
    run(load(spark, shop, failOnDataLoss=False), sink, checkpoint)
    assert sink.batches[1] == again


def test_two_queries_and_two_sources_in_one_query_do_not_disturb_each_other(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.create("returns")
    sent = [*shop.send("orders", 1, 7), *shop.send("returns", 0, 2)]
    both, single = Collector(), Collector()
    united = load(spark, shop, maxOffsetsPerTrigger=3).union(load(spark, shop, subscribe="returns"))
    queries = [
        start(united, both, tmp_path / "both"),
        start(load(spark, shop), single, tmp_path / "single"),
    ]
    assert all(query.awaitTermination(120) for query in queries)
    assert both.places == sorted(sent)
    assert single.places == shop.places("orders")


def test_a_stream_has_no_end_and_no_other_columns(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="'endingOffsets' is for batch reads"):
        run(load(spark, shop, endingOffsets="latest"), Collector(), tmp_path / "checkpoint")
