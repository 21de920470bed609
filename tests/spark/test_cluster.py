"""Finds rows that are stored twice when tasks run twice, or get lost with their executor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.cluster import cluster
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from tests.spark.unlucky import Unlucky

master, url, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", False)
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.executor.memory", "512m")
builder = builder.config("spark.speculation", True).config("spark.speculation.quantile", 0.1)
builder = builder.config("spark.speculation.multiplier", 1.01)
spark = builder.config("spark.speculation.minTaskRuntime", "0ms").getOrCreate()
spark.dataSource.register(Unlucky)
orders = spark.readStream.format("kmq").option("subscribe", "orders").option("minPartitions", 3)
orders = orders.option("startingOffsets", "earliest").load(url).selectExpr(
    "lpad(string(value), 200, 'x') value")  # more than travels to the driver in a message
orders.writeStream.format("kmq_unlucky").option("topic", "totals").option(
    "checkpointLocation", checkpoint).trigger(availableNow=True).start(url).awaitTermination()
"""


@pytest.mark.timeout(300)
def test_a_batch_is_stored_once_though_tasks_run_twice_and_executors_die(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.create("totals")
    shop.send("orders", 0, 6_000)
    with cluster(tmp_path) as master:
        command = [sys.executable, "-c", SCRIPT, master, shop.url, str(tmp_path / "checkpoint")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    attempts = {file.name for file in tmp_path.glob("staged-*")}
    assert attempts >= {"staged-0-0", "staged-0-1", "staged-1-0", "staged-1-1"}
    written = [value.lstrip(b"x") for value in shop.values("totals")]
    assert sorted(written) == sorted(shop.values("orders"))
    assert len([*Path(shop.url).glob("staged/*")]) >= 5, "what nobody committed is there, unseen"
