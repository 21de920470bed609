"""Finds records that a killed driver loses or repeats, from one kmq topic into another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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

url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
orders = spark.readStream.format("kmq").option("subscribe", "orders").option(
    "startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10).option("group", "g").load(url)
orders.select("key", "value").writeStream.format("kmq").option("topic", "totals").option(
    "checkpointLocation", checkpoint).start(url).awaitTermination()
"""


@pytest.fixture(params=["local", "s3"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A store with a topic `orders` of three partitions, on a disk and in a bucket."""
    s3 = request.param == "s3"
    made = Shop(request.getfixturevalue("s3_url") if s3 else tmp_path / "shop")
    made.create("orders", 3)
    yield made
    made.close()


def _run_and_kill(shop: Shop, checkpoint: Path, *, after: int) -> None:
    """Run the query in a process of its own, and kill it when the sink holds some records."""
    command = [sys.executable, "-c", SCRIPT, shop.url, str(checkpoint)]
    driver = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while len(shop.places("totals")) < after:
            assert driver.poll() is None, "the query ended by itself"
            assert time.monotonic() < deadline, "the query makes no progress"
            time.sleep(0.1)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def test_a_query_whose_driver_is_killed_writes_every_record_once(
    spark: SparkSession, shop: Shop, moto: S3Server, tmp_path: Path
) -> None:
    # The session may be older than this test's environment, which the killed driver inherits.
    given = moto.options() if shop.url.startswith("s3:") else {}
    options = {f"storage.{name}": value for name, value in given.items()}
    shop.create("totals", 2)
    shop.send("orders", 0, 500)
    checkpoint = tmp_path / "checkpoint"
    _run_and_kill(shop, checkpoint, after=30)
    frame = load(spark, shop, group="g", **options).select("key", "value")
    writer = frame.writeStream.format("kmq").options(**options).option("topic", "totals")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert writer.start(shop.url).awaitTermination(120)
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))
    assert shop.committed("g", "orders")[0] == 500
