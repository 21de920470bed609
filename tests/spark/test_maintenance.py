"""Finds a Spark job that leaves partitions unsealed, or that changes what is read."""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from kmq_spark import maintenance
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


def _rows(spark: SparkSession, shop: Shop) -> list[Row]:
    reader = spark.read.format("kmq").option("subscribe", "parts")
    return sorted(reader.load(shop.url).select("partition", "offset", "key", "value").collect())


def test_executors_seal_every_partition_and_readers_see_the_same(spark: SparkSession, shop: Shop):
    shop.create("parts", 3)
    for partition in range(3):
        for _ in range(4):
            shop.send("parts", partition, 10)
    before = _rows(spark, shop)
    report = maintenance.maintain(spark, shop.url, seal_after=0.0, grace=0.0)
    assert (report.sealed.segments, report.sealed.rows) == (3, 120)
    assert report.sealed.conflicts == 0
    assert report.checkpoint.pages == 1
    assert shop.store.stats().files["segments"] == 3
    assert _rows(spark, shop) == before


def test_a_second_job_finds_nothing_to_do(spark: SparkSession, shop: Shop):
    shop.create("parts", 1)
    shop.send("parts", 0, 10)
    maintenance.maintain(spark, shop.url, seal_after=0.0)
    again = maintenance.maintain(spark, shop.url, seal_after=0.0)
    assert (again.sealed.segments, again.compacted.after, again.trimmed.rows) == (0, 0, 0)
