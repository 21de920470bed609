"""Finds rows that are stored twice when tasks run twice, or get lost with their executor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import cluster
from tests.spark.shop import Shop
from tests.spark.unlucky import marks_of
from tests.support.spark import require_jvm

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from tests.spark.unlucky import Unlucky

master, checkpoints, *urls = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", False)
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.executor.memory", "512m")
builder = builder.config("spark.speculation", True).config("spark.speculation.quantile", 0.1)
builder = builder.config("spark.speculation.multiplier", 1.01)
spark = builder.config("spark.speculation.minTaskRuntime", "0ms").getOrCreate()
spark.dataSource.register(Unlucky)
for number, url in enumerate(urls):
    orders = spark.readStream.format("kmq").option("subscribe", "orders").option("minPartitions", 3)
    orders = orders.option("startingOffsets", "earliest").load(url).selectExpr(
        "lpad(string(value), 200, 'x') value")  # more than travels to the driver in a message
    orders.writeStream.format("kmq_unlucky").option("topic", "totals").option(
        "checkpointLocation", f"{checkpoints}/{number}").trigger(
        availableNow=True).start(url).awaitTermination()
"""


@pytest.mark.timeout(300)
def test_a_batch_is_stored_once_though_tasks_run_twice_and_executors_die(
    shop: Shop, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KMQ_TEST_MARKS", str(tmp_path))
    require_jvm()
    bucket = Shop(s3_url)
    bucket.create("orders", 3)
    for each in (shop, bucket):  # in one cluster, which takes most of the time
        each.create("totals")
        each.send("orders", 0, 6_000)
        marks_of(each.url).mkdir()
    with cluster(tmp_path) as master:
        command = [sys.executable, "-c", SCRIPT, master, str(tmp_path), shop.url, bucket.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    for each in (shop, bucket):
        attempts = {file.name for file in marks_of(each.url).iterdir()}
        assert attempts >= {"staged-0-0", "staged-0-1", "staged-1-0", "staged-1-1"}
        written = [value.lstrip(b"x") for value in each.values("totals")]
        assert sorted(written) == sorted(each.values("orders"))
    assert len([*Path(shop.url).glob("staged/*")]) >= 5, "what nobody committed is there, unseen"
    bucket.close()
