"""Finds records that a stream loses or repeats when a power cut takes its checkpoint's files."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.spark.running import load, patiently
from tests.spark.shop import Shop
from tests.support.loop_disk import LoopDisk


def _run(spark: SparkSession, shop: Shop, disk: LoopDisk) -> None:
    frame = load(spark, shop).select("key", "value")
    writer = frame.writeStream.format("kmq").option("topic", "totals")
    writer = writer.option("checkpointLocation", str(disk.root / "checkpoint"))
    assert writer.trigger(availableNow=True).start(shop.url).awaitTermination(120)


@pytest.mark.parametrize("before", [0, 1], ids=["the first batch", "a later batch"])
def test_a_stream_writes_each_record_once_though_its_checkpoint_loses_what_was_not_synced(
    spark: SparkSession, shop: Shop, disk: LoopDisk, before: int
) -> None:
    shop.create("totals")
    for _ in range(before + 1):
        shop.send("orders", 0, 5)
        patiently(_run, spark, shop, disk)
    disk.cut_power()
    disk.unmount(lazy=True)
    disk.mount()
    assert not (disk.root / f"checkpoint/commits/{before}").exists(), "the power cut took nothing"
    shop.send("orders", 0, 5)  # what is planned anew has more in it
    patiently(_run, spark, shop, disk)
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))
