"""Finds queries that stop, stall or lose records when topics go or come again while they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.running import Collector, load, run, start
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("partitions", [3, 1])
def test_an_available_now_run_fails_when_its_topic_is_made_again_between_two_batches(
    spark: SparkSession, shop: Shop, tmp_path: Path, partitions: int, *, strict: bool
) -> None:
    shop.send("orders", 0, 4)
    sink, checkpoint = Collector(), tmp_path / "checkpoint"
    options = {"maxOffsetsPerTrigger": 2, "failOnDataLoss": strict}

    def make_again(frame: DataFrame, number: int) -> None:
        sink(frame, number)
        shop.delete("orders")
        shop.create("orders", partitions)
        shop.send("orders", 0, 5)

    with pytest.raises(StreamingQueryException, match=r"an AvailableNow run was reading it"):
        run(load(spark, shop, **options), make_again, checkpoint)
    assert sink.places == [("orders", 0, n) for n in range(2)]
    again = Collector()
    run(load(spark, shop, failOnDataLoss=False), again, checkpoint)
    assert again.places == [("orders", 0, n) for n in range(5)]


def test_a_query_lives_on_without_its_only_topic_and_reads_the_next_one_from_its_start(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    sent = shop.send("orders", 0, 5)
    sink, checkpoint = Collector(), tmp_path / "checkpoint"
    reader = spark.readStream.format("kmq").option("startingOffsets", "earliest")
    reader = reader.option("subscribePattern", "^orders").option("failOnDataLoss", False)
    query = start(reader.load(shop.url), sink, checkpoint, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        assert sink.places == sent
        shop.delete("orders")
        query.processAllAvailable()
        shop.create("orders", 2)
        again = shop.send("orders", 1, 3)
        query.processAllAvailable()
        assert sink.batches[max(sink.batches)] == again
    finally:
        query.stop()
    shop.delete("orders")
    run(reader.load(shop.url), sink, checkpoint)
    shop.create("orders")
    last = shop.send("orders", 0, 4)
    run(reader.load(shop.url), sink, checkpoint)
    assert sink.batches[max(sink.batches)] == last
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        assert '"#kmq"' in file.read_text().splitlines()[-1]


def test_each_batch_of_a_running_query_has_the_limit_and_its_progress_the_end_of_the_log(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 7)
    sink = Collector()
    frame = load(spark, shop, maxOffsetsPerTrigger=3)
    query = start(frame, sink, tmp_path / "checkpoint", processingTime="0 seconds")
    try:
        query.processAllAvailable()
        told = [each for each in query.recentProgress if each.numInputRows]
    finally:
        query.stop()
    assert sink.sizes == [3, 3, 1]
    assert [each.numInputRows for each in told] == sink.sizes
    ends = [json.loads(each.sources[0].latestOffset)["orders"] for each in told]
    assert ends == [{"0": 7, "1": 0, "2": 0}] * 3
