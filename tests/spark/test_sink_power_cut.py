"""Finds records that a stream loses or repeats when a power cut takes its checkpoint's files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.running import load, patiently
from tests.spark.shop import Shop
from tests.support.loop_disk import LoopDisk


def _run(spark: SparkSession, shop: Shop, place: dict[str, str]) -> None:
    frame = load(spark, shop).select("key", "value")
    writer = frame.writeStream.format("kmq").option("topic", "totals").options(**place)
    writer = writer.queryName("checkpoint")
    assert writer.trigger(availableNow=True).start(shop.url).awaitTermination(120)


@pytest.fixture(params=["by its option", "by the session"])
def place(
    request: pytest.FixtureRequest, spark: SparkSession, disk: LoopDisk
) -> Iterator[dict[str, str]]:
    """The options that put a checkpoint onto the disk; none where the session's settings do."""
    if request.param == "by its option":
        yield {"checkpointLocation": str(disk.root / "checkpoint")}
        return
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(disk.root))
    yield {}
    spark.conf.unset("spark.sql.streaming.checkpointLocation")


@pytest.mark.parametrize("before", [0, 1], ids=["the first batch", "a later batch"])
def test_a_stream_writes_each_record_once_though_its_checkpoint_loses_what_was_not_synced(
    spark: SparkSession, shop: Shop, disk: LoopDisk, place: dict[str, str], before: int
) -> None:
    shop.create("totals")
    for _ in range(before + 1):
        shop.send("orders", 0, 5)
        patiently(_run, spark, shop, place)
    disk.cut_power()
    disk.unmount(lazy=True)
    disk.mount()
    assert not (disk.root / f"checkpoint/commits/{before}").exists(), "the power cut took nothing"
    shop.send("orders", 0, 5)  # what is planned anew has more in it
    patiently(_run, spark, shop, place)
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))
