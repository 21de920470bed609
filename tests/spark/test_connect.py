"""Finds uses of the JVM or of a SparkContext in the data source: Spark Connect has neither."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.shop import Shop
from tests.support.spark import require_jvm

pytestmark = pytest.mark.spark

SCRIPT = """
import os
import sys
from pyspark.sql import SparkSession
import kmq_spark as kmq
from kmq_spark import archive
from kmq_spark.listener import KmqListener
from tests.spark.running import patiently

url, checkpoint, lake = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__

orders = spark.read.format("kmq").option("subscribe", "orders").load(url)
assert orders.count() == 10, orders.count()
spark.range(5).selectExpr("string(id) value").write.format("kmq").mode("append").option(
    "topic", "totals").save(url)

reports = []
listener = KmqListener(report=reports.append)
spark.streams.addListener(listener)
stream = spark.readStream.format("kmq").option("subscribe", "orders").option(
    "startingOffsets", "earliest")
query = stream.option("group", "g").load(url).select("key", "value").writeStream.format(
    "kmq").option("topic", "totals").option("checkpointLocation", checkpoint + "/1").trigger(
    availableNow=True).start(url)
query.awaitTermination()
assert kmq.lag(query) == {"orders": {0: 0, 1: 0, 2: 0}}, kmq.lag(query)

def store(batch, number):
    twice = batch.write.format("kmq").mode("append").option("topic", "copies").option(
        "txnAppId", "copying").option("txnVersion", number)
    twice.save(url)
    twice.save(url)

stream.option("group", "h").load(url).select("key", "value").writeStream.foreachBatch(store).option(
    "checkpointLocation", checkpoint + "/2").trigger(availableNow=True).start().awaitTermination()
assert spark.read.format("kmq").option("subscribe", "copies").load(url).count() == 10
assert sum(report.records for report in reports if report.group == "g") >= 10, reports
spark.streams.removeListener(listener)

spark.sql(f"CREATE TEMPORARY VIEW recent USING kmq OPTIONS (path '{url}', subscribe 'orders', "
    "startingTimestamp '-1h', columns 'offset', partitions '0')")
assert spark.sql("SELECT max(offset) FROM recent").first()[0] == 9

with kmq.incremental(spark, url, "jobs", subscribe="orders") as new:
    new.write(new.df.select("key", "value"), topic="totals")

patiently(archive.run, spark, url, lake, topics=["orders"], file_format="parquet", keep=0)
whole = spark.read.format("kmq").option("subscribe", "orders").option("archive", lake).load(url)
assert whole.count() == 10, whole.count()

kmq.register(spark)
assert spark.read.format("kmq").option("subscribe", "totals").load(url).count() == 25
def refusal(topic, place):
    try:
        spark.read.format("kmq").option("subscribe", topic).load(place).count()
    except Exception as error:
        return str(error)
    return "nothing was refused"

assert "Topic[nowhere] doesn't exist." in refusal("nowhere", url), refusal("nowhere", url)
told = refusal("orders", os.path.relpath(url))
assert "expected a full path or a URL" in told, told
os.chdir(os.path.dirname(lake))
with kmq.incremental(spark, url, "old", subscribe="orders", archive=os.path.basename(lake)) as new:
    assert new.df.count() == 10, new.df.count()
spark.stop()
print("done")
"""


def test_everything_works_under_spark_connect(shop: Shop, tmp_path: Path) -> None:
    require_jvm()
    shop.create("totals", 2)
    shop.create("copies", 1)
    shop.send("orders", 0, 10)
    places = [str(tmp_path / name) for name in ("checkpoint", "lake")]
    # A process of its own: a session and a remote session don't live in one JVM.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, shop.url, *places],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )
    assert done.stdout.endswith("done\n"), done.stderr[-4_000:]
    assert [shop.committed(group, "orders")[0] for group in ("g", "jobs")] == [10, 10]
