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
            time.sleep(0.01)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def test_a_query_whose_driver_is_killed_writes_every_record_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.create("totals", 2)
    shop.send("orders", 0, 500)
    checkpoint = tmp_path / "checkpoint"
    _run_and_kill(shop, checkpoint, after=30)
    frame = load(spark, shop, group="g").select("key", "value")
    writer = frame.writeStream.format("kmq").option("topic", "totals")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert writer.start(shop.url).awaitTermination(120)
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))
    assert shop.committed("g", "orders")[0] == 500
