"""Spark on a store in a bucket, reached by options alone. Finds tasks and commits that lack
credentials, plans, progress and errors that show them, and rows that are lost or stored twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import SparkSession

import kmq_spark as kmq
from tests.spark.lost_answer import LostAnswer
from tests.spark.running import forget_last_commit, load
from tests.spark.shop import Shop
from tests.support.s3 import S3Server

pytestmark = pytest.mark.spark


@pytest.fixture
def given(moto: S3Server) -> dict[str, str]:
    """How a read or write is told the way into the bucket."""
    return {f"storage.{name}": value for name, value in moto.options().items()}


@pytest.fixture
def bucket(moto: S3Server) -> Iterator[Shop]:
    """A store in a bucket, with topics `orders` and `totals`."""
    made = Shop(moto.new_url(), storage_options=moto.options())
    made.create("orders", 2)
    made.create("totals")
    yield made
    made.close()


def test_a_stream_writes_every_record_once_whatever_is_replayed_or_aborted(
    spark: SparkSession, bucket: Shop, given: dict[str, str], tmp_path: Path
) -> None:
    spark.dataSource.register(LostAnswer)

    def copy(sink: str = "kmq", **options: str) -> None:
        bucket.send("orders", 0, 3)
        frame = load(spark, bucket, **given, **options).select("key", "value")
        writer = frame.writeStream.format(sink).options(**given).option("topic", "totals")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start(bucket.url).awaitTermination(120)

    with pytest.raises(StreamingQueryException, match="the answer was lost"):
        copy("kmq_lost_answer")
    copy()
    forget_last_commit(tmp_path / "checkpoint")
    copy(group="copier")
    assert bucket.values("totals") == bucket.values("orders")
    assert bucket.committed("copier", "orders")[0] == 9


def test_two_queries_append_to_one_topic_at_the_same_time(
    spark: SparkSession, bucket: Shop, given: dict[str, str], tmp_path: Path
) -> None:
    bucket.send("orders", 0, 10)
    frame = load(spark, bucket, maxOffsetsPerTrigger=5, **given).select("key", "value")
    writer = frame.writeStream.format("kmq").options(**given).option("topic", "totals")
    queries = [
        writer.option("checkpointLocation", str(tmp_path / name))
        .trigger(availableNow=True)
        .start(bucket.url)
        for name in ("one", "two")
    ]
    assert all(query.awaitTermination(120) for query in queries)
    assert sorted(bucket.values("totals")) == sorted(bucket.values("orders") * 2)


def test_a_write_whose_tasks_fail_leaves_nothing_to_see(
    spark: SparkSession, bucket: Shop, given: dict[str, str]
) -> None:
    def fail_late(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"value": ["x" * 1_000] * 1_000})
            if (frame["id"] >= 1).any():
                raise ValueError("this task breaks")

    frame = spark.range(0, 2, 1, 2).mapInPandas(fail_late, "value string")
    lsn = bucket.lsn()
    writer = frame.write.format("kmq").mode("append").options(**given, topic="totals")
    with pytest.raises(PythonException, match="this task breaks"):
        writer.save(bucket.url)
    assert (bucket.lsn(), bucket.places("totals")) == (lsn, [])


def test_records_and_the_move_of_their_group_are_one_commit(
    spark: SparkSession, bucket: Shop, given: dict[str, str]
) -> None:
    for _ in range(2):
        bucket.send("orders", 0, 3)
        with kmq.incremental(spark, bucket.url, "g", subscribe="orders", **given) as new:
            new.write(new.df.select("key", "value"), topic="totals")
    assert bucket.values("totals") == bucket.values("orders")
    assert bucket.committed("g", "orders")[0] == 6


def test_options_reach_a_bucket_and_its_credentials_show_nowhere(
    spark: SparkSession,
    moto: S3Server,
    given: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = moto.new_url()
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
