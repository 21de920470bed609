"""Finds what only whole queries show: SQL, several queries on one source, joins, watermarks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark.running import Collector, load, run, start
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)


def _send_every_minute(shop: Shop, count: int) -> None:
    times = [NOON + timedelta(minutes=n) for n in range(count)]
    with shop.store.producer() as producer:
        producer.send_batch(
            "orders",
            [b"v%d" % n for n in range(count)],
            [b"k%d" % (n % 3) for n in range(count)],
            partition=0,
            timestamps=times,
            properties=[{"n": n} for n in range(count)],
        ).result(timeout=30)


def test_a_view_in_sql_takes_every_kind_of_option(spark: SparkSession, shop: Shop) -> None:
    _send_every_minute(shop, 12)
    shop.store.seal()
    spark.sql(
        f"""CREATE OR REPLACE TEMPORARY VIEW minutes USING kmq OPTIONS (
            path '{shop.url}', subscribe 'orders', partitions '0',
            startingTimestamp '2024-05-06T12:02:00Z', endingOffsets '{{"orders":{{"*":9}}}}',
            columns 'properties,offset', maxRecordsPerPartition 3)"""
    )
    rows = spark.sql("SELECT *, spark_partition_id() task FROM minutes ORDER BY offset").collect()
    assert [(row.properties, row.offset) for row in rows] == [
        ({"n": str(n)}, n) for n in range(2, 9)
    ]
    assert len({row.task for row in rows}) == 3
    joined = spark.sql("SELECT count(*) FROM minutes a JOIN minutes b ON a.offset = b.offset + 1")
    assert joined.first()[0] == 6


def test_two_queries_share_a_source_and_it_joins_itself(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    _send_every_minute(shop, 6)
    frame, sink, pairs = load(spark, shop), Collector(), Collector()
    other = frame.select(f.col("offset").alias("o"), f.col("key").alias("k"))
    joined = frame.join(other, (f.col("key") == f.col("k")) & (f.col("offset") < f.col("o")))
    queries = [
        start(frame, sink, tmp_path / "plain"),
        start(joined, pairs, tmp_path / "joined"),
    ]
    assert all(query.awaitTermination(200) for query in queries)
    assert sink.places == shop.places("orders")
    assert pairs.places == [("orders", 0, n) for n in range(3)]  # 0 with 3, 1 with 4, 2 with 5


def test_a_stream_joins_what_a_batch_frame_had_when_it_was_planned_or_what_each_batch_loads(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.create("names")
    batch = spark.read.format("kmq").option("subscribe", "names")
    frame, planned, loaded = batch.load(shop.url).select("value"), Collector(), Collector()
    for number in range(2):
        shop.send("orders", 0, 1)
        shop.send("names", 0, 1)
        joined = load(spark, shop).crossJoin(frame.withColumnRenamed("value", "name"))
        run(joined, planned, tmp_path / "planned")
        run(
            load(spark, shop),
            lambda rows, n: loaded(rows.crossJoin(batch.load(shop.url).select("value")), n),
            tmp_path / "loaded",
        )
        assert (planned.sizes[number], loaded.sizes[number]) == (1, number + 1)


@pytest.mark.parametrize(("reuse", "counted"), [(True, 6), (False, 12)])
def test_a_stream_that_is_joined_with_itself_has_one_offset(
    spark: SparkSession, shop: Shop, tmp_path: Path, *, reuse: bool, counted: int
) -> None:
    _send_every_minute(shop, 6)
    session, rows = spark.newSession(), []
    session.conf.set("spark.sql.exchange.reuse", reuse)
    values = load(session, shop).selectExpr("string(key) k", "string(value) v")

    def keep(batch: DataFrame, _number: int) -> None:
        rows.extend(batch.collect())

    query = run(values.join(values, "k"), keep, tmp_path / "checkpoint")
    assert len(rows) == 3 * 2 * 2
    _version, _facts, *offsets = (tmp_path / "checkpoint/offsets/0").read_text().splitlines()
    assert len(set(offsets)) == 1
    progress = query.recentProgress
    assert {len(each.sources) for each in progress} == {1}
    assert sum(each.numInputRows for each in progress) == counted


def test_a_watermark_on_the_timestamp_closes_windows(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    _send_every_minute(shop, 12)
    closed: list[tuple[datetime, int]] = []

    def collect(windows: DataFrame, number: int) -> None:
        rows = windows.select("window.start", "count").collect()
        closed.extend((row.start.astimezone(UTC), row["count"]) for row in rows)

    windows = load(spark, shop).withWatermark("timestamp", "1 minute")
    windows = windows.groupBy(f.window("timestamp", "5 minutes")).count()
    run(windows, collect, tmp_path / "checkpoint")
    assert sorted(closed) == [(NOON, 5), (NOON + timedelta(minutes=5), 5)]
