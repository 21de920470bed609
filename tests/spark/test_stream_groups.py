"""Finds groups that two real queries share, that stand still at the end, or hide their reader."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import kmq_spark as kmq
from kmq_spark.listener import KmqListener, QueryReport
from tests.spark.running import Collector, load, run, start
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


def test_a_second_query_is_refused_with_the_name_of_the_first(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    frame, sink = load(spark, shop, group="billing"), Collector()
    writer = frame.writeStream.queryName("first").foreachBatch(sink)
    first = writer.option("checkpointLocation", str(tmp_path / "first")).start()
    try:
        for records in (0, 3):
            shop.send("orders", 0, records)
            first.processAllAvailable()
            assert kmq.lag(first) == {"orders": {0: 0, 1: 0, 2: 0}}
            (member,) = shop.store.describe_group("billing").members
            assert member.client.startswith(f"streaming query 'first' (id {first.id}), ")
            assert member.assignment == {"orders": [0, 1, 2]}
        with pytest.raises(StreamingQueryException) as refused:
            run(load(spark, shop, group="billing"), Collector(), tmp_path / "second")
        assert "FencedError: group billing is in use since" in str(refused.value)
        assert f"streaming query 'first' (id {first.id})" in str(refused.value)
        sent = shop.send("orders", 1, 2)
        first.processAllAvailable()
        assert sink.places[-2:] == sent
    finally:
        first.stop()
    third = Collector()
    run(load(spark, shop, group="billing"), third, tmp_path / "third")
    assert third.places == []


def test_a_frame_with_a_group_is_joined_with_itself_as_the_refusal_says(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    sent, frame = shop.send("orders", 0, 3), load(spark, shop, group="g")
    with pytest.raises(StreamingQueryException, match="it may be this query itself, reading the"):
        run(frame.join(frame.select("offset"), "offset"), Collector(), tmp_path / "refused")
    other = frame.selectExpr("offset AS o")
    pairs, sink = frame.join(other, frame["offset"] == other["o"]), Collector()
    query = run(pairs, sink, tmp_path / "renamed")
    assert sink.places == sent
    assert len(query.lastProgress.sources) == 1
    again, sink = load(spark, shop, group="another").select("offset"), Collector()
    run(load(spark, shop, group="one").join(again, "offset"), sink, tmp_path / "twice")
    assert sink.places == sent


def test_a_listener_moves_the_group_after_a_batch_that_spark_never_tells_of(
    spark: SparkSession, shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[QueryReport] = []
    told = threading.Event()
    listener = KmqListener(lambda report: (reports.append(report), told.set()))
    shop.send("orders", 0, 7)
    caplog.set_level(logging.INFO, "kmq_spark.listener")
    spark.streams.addListener(listener)
    try:
        once = start(load(spark, shop, group="g"), Collector(), tmp_path / "once", once=True)
        assert once.awaitTermination(120)
        assert told.wait(60)
    finally:
        spark.streams.removeListener(listener)
    assert shop.committed("g", "orders") == {0: 7, 1: 0, 2: 0}
    assert (reports[0].records, reports[0].group, reports[0].lost) == (7, "g", 0)
    assert reports[0].behind is not None
    assert reports[0].behind.records == 0
    assert "7 records" in caplog.text


def test_a_stopped_query_leaves_its_group_to_its_own_next_run(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 3)
    frame, sink = load(spark, shop, group="g"), Collector()
    for _ in range(2):
        query = start(frame, sink, tmp_path / "same", processingTime="0 seconds")
        query.processAllAvailable()
        query.stop()
        shop.send("orders", 0, 3)
    run(frame, sink, tmp_path / "same")
    assert sink.places == shop.places("orders")
    assert shop.store.describe_group("g").lag == {"orders": {0: 0, 1: 0, 2: 0}}
