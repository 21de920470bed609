"""Spark on a store in a bucket, reached by options alone. Finds tasks that lack credentials, and
plans, progress and errors that show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kmq_spark as kmq
from tests.support.s3 import S3Server

pytestmark = pytest.mark.spark


def test_options_reach_a_bucket_and_its_credentials_show_nowhere(
    spark: SparkSession, moto: S3Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = moto.new_url()
    given = {f"storage.{name}": value for name, value in moto.options().items()}
    with kmq.open(url, storage_options=moto.options()) as store:
        store.create_topic("orders", partitions=2)
        store.create_topic("copies")
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format("kmq").options(**given, topic="orders").mode("append").save(url)
    frame = spark.read.format("kmq").options(**given, subscribe="orders").load(url)
    assert frame.count() == 100
    stream = spark.readStream.format("kmq").options(**given, subscribe="orders")
    stream = stream.option("startingOffsets", "earliest").load(url)
    to_bucket = stream.select("value").writeStream.format("kmq").options(**given, topic="copies")
    to_bucket = to_bucket.option("checkpointLocation", str(tmp_path / "copying"))
    query = to_bucket.trigger(availableNow=True).start(url)
    assert query.awaitTermination(120)
    with kmq.open(url, storage_options=moto.options(), read_only=True) as store:
        assert store.offsets("copies") == {0: (0, 100)}
    with pytest.raises(Exception, match="nothing_like_it") as caught:
        frame_of = spark.read.format("kmq").options(**given, subscribe="orders", nothing_like_it=1)
        frame_of.load(url).count()
    plan = frame._jdf.queryExecution().toString()  # the logical ones and the physical one
    frame.explain(extended=True)
    shown = capfd.readouterr()
    checkpoint = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file() and not p.suffix)
    places = (plan, str(query.lastProgress), str(caught.value), shown.out, shown.err, checkpoint)
    assert not [text for text in places if moto.options()["secret_access_key"] in text]
