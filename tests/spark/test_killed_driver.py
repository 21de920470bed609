"""Finds records that a killed driver loses or repeats, from one kmq topic into another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.running import load
from tests.spark.shop import Shop
from tests.support.s3 import S3Server

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pyspark.sql import SparkSession

checkpoints, *urls = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
for number, url in enumerate(urls):
    orders = spark.readStream.format("kmq").option("subscribe", "orders").option("group", "g")
    orders = orders.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10)
    orders.load(url).select("key", "value").writeStream.format("kmq").option(
        "topic", "totals").option("checkpointLocation", f"{checkpoints}/{number}").start(url)
spark.streams.awaitAnyTermination()
"""


def _run_and_kill(shops: list[Shop], checkpoints: Path, *, after: int) -> None:
    """Run a query for each in a process of its own; kill it when every sink holds some records."""
    urls, said = [shop.url for shop in shops], checkpoints / "driver.log"
    with said.open("w") as output:
        driver = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(checkpoints), *urls],
            start_new_session=True,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + 180
        while min(len(shop.places("totals")) for shop in shops) < after:
            assert driver.poll() is None, f"a query ended by itself: {said.read_text()[-4000:]}"
            assert time.monotonic() < deadline, "a query makes no progress"
            time.sleep(0.1)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


@pytest.mark.timeout(300)
def test_a_query_whose_driver_is_killed_writes_every_record_once(
    spark: SparkSession, shop: Shop, s3_url: str, moto: S3Server, tmp_path: Path
) -> None:
    # The session may be older than this test's environment, which the killed driver inherits.
    way_in = {f"storage.{name}": value for name, value in moto.options().items()}
    bucket = Shop(s3_url)
    bucket.create("orders", 3)
    for each in (shop, bucket):  # on a disk and in a bucket: the driver takes most of the time
        each.create("totals", 2)
        each.send("orders", 0, 2_000)
    _run_and_kill([shop, bucket], tmp_path, after=30)
    for number, (each, options) in enumerate([(shop, {}), (bucket, way_in)]):
        frame = load(spark, each, group="g", **options).select("key", "value")
        writer = frame.writeStream.format("kmq").options(**options).option("topic", "totals")
        writer = writer.option("checkpointLocation", str(tmp_path / str(number)))
        assert writer.trigger(availableNow=True).start(each.url).awaitTermination(120)
        assert sorted(each.values("totals")) == sorted(each.values("orders"))
        assert each.committed("g", "orders")[0] == 2_000
    bucket.close()
