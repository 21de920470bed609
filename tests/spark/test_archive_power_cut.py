"""Finds records that the log gave up for an archive, and that a power cut takes from that."""

from __future__ import annotations

from functools import partial

import pytest
from pyspark.sql import SparkSession

from kmq_spark import archive
from tests.spark.running import patiently
from tests.spark.shop import Shop
from tests.support.loop_disk import LoopDisk
from tests.support.spark import require_delta

_archive = partial(patiently, archive.run)


@pytest.mark.parametrize("file_format", ["delta", "parquet"])
def test_what_the_log_gave_up_for_an_archive_survives_a_power_cut_there(
    spark: SparkSession, shop: Shop, disk: LoopDisk, file_format: str
):
    require_delta(spark)
    path = disk.root / "lake"
    places = shop.send("orders", 0, 5)
    _archive(spark, shop.url, path, topics=["orders"], file_format=file_format, keep=0)
    assert shop.store.describe_topic("orders").rows == 0
    disk.cut_power()
    disk.unmount(lazy=True)
    disk.mount()
    places += shop.send("orders", 0, 5)
    _archive(spark, shop.url, path, keep=0)
    reader = spark.read.format("kmq").option("subscribe", "orders").option("archive", str(path))
    rows = reader.load(shop.url).select("topic", "partition", "offset").collect()
    assert sorted(tuple(row) for row in rows) == places
