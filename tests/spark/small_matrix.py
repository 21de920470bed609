"""What must work on every Spark, as a program: `python -m tests.spark.small_matrix FOLDER`.

Batch reads and all writes everywhere; a streaming read from 4.2 on, refused with the reason before.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import kmq_spark as kmq
from tests.spark.running import forget_last_commit, patiently
from tests.support.spark import start_session

#: Whether this Spark reads streams from kmq.
_STREAMS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)


def run(folder: Path) -> None:
    """Everything, on the Spark that is installed; an AssertionError says what went wrong."""
    url = str(folder / "shop")
    with kmq.open(url) as store:
        store.create_topic("orders", partitions=2)
        store.create_topic("typed", schema=pa.schema([("id", pa.int64()), ("name", pa.string())]))
        spark = start_session(folder / "warehouse")
        _writes_and_reads_a_batch(spark, url)
        _writes_a_stream_exactly_once(spark, store, url, folder)
        _reads_a_stream_or_says_why_not(spark, url, folder)
        _moves_a_group_by_batch_jobs(spark, store, url)
        _shows_the_state_as_tables(spark, url)
        if _STREAMS:
            _moves_a_group_by_limited_batches(spark, store, url, folder)
            _recognises_a_topic_that_was_made_again(spark, store, url, folder)
            _lives_through_long_pauses(spark, store, url, folder)
        spark.stop()


def _load(spark: SparkSession, url: str, topic: str, **options: object) -> DataFrame:
    return spark.read.format("kmq").options(subscribe=topic, **options).load(url)


def _writes_and_reads_a_batch(spark: SparkSession, url: str) -> None:
    rows = spark.range(100).selectExpr(
        "cast(id % 7 as string) key",
        "cast(id as string) value",
        "timestamp'2024-05-06 07:08:09.123456' timestamp",
        "array(struct('h' key, cast('x' as binary) value)) headers",
    )
    rows.write.format("kmq").mode("append").option("topic", "orders").save(url)
    read = _load(spark, url, "orders", includeHeaders=True, includeProperties=True)
    assert read.count() == 100
    row = read.filter("cast(value as string) = '42'").first()
    assert (row.key, row.headers[0].value, row.properties) == (b"0", b"x", None), row
    assert str(row.timestamp) == "2024-05-06 07:08:09.123456", row.timestamp
    named = spark.range(5).selectExpr("id", "concat('n', id) name")
    named.write.format("kmq").mode("append").option("topic", "typed").save(url)
    found = _load(spark, url, "typed", columns="name,_offset").orderBy("_offset").collect()
    assert [tuple(each) for each in found] == [(f"n{n}", n) for n in range(5)], found


def _writes_a_stream_exactly_once(
    spark: SparkSession, store: kmq.Store, url: str, folder: Path
) -> None:
    store.create_topic("streamed")
    spark.range(30).selectExpr("cast(id as string) value").write.parquet(str(folder / "input"))
    stream = spark.readStream.schema("value string").parquet(str(folder / "input"))
    writer = stream.writeStream.format("kmq").option("topic", "streamed").trigger(availableNow=True)
    checkpoint = folder / "sink"
    for _ in range(2):
        patiently(_to_its_end, writer.option("checkpointLocation", str(checkpoint)), url)
        assert _load(spark, url, "streamed").count() == 30
        forget_last_commit(checkpoint)  # the second run writes the same batch again


def _reads_a_stream_or_says_why_not(spark: SparkSession, url: str, folder: Path) -> None:
    stream = spark.readStream.format("kmq").option("subscribe", "orders")
    frame = stream.option("startingOffsets", "earliest").load(url)
    writer = frame.writeStream.option("checkpointLocation", str(folder / "source"))
    writer = writer.format("noop").trigger(availableNow=True)
    if _STREAMS:
        query = patiently(_to_its_end, writer)
        assert sum(batch["numInputRows"] for batch in query.recentProgress) == 100
        return
    with pytest.raises(PySparkException, match="can't read a stream from kmq"):
        patiently(_to_its_end, writer)


def _moves_a_group_by_batch_jobs(spark: SparkSession, store: kmq.Store, url: str) -> None:
    for expected in (100, 0):
        with kmq.incremental(spark, url, group="job", subscribe="orders") as new:
            assert new.df.count() == expected
    assert sum(store.describe_group("job").committed["orders"].values()) == 100


def _shows_the_state_as_tables(spark: SparkSession, url: str) -> None:
    names = ("topics", "partitions", "groups", "members", "segments", "commits", "queues")
    tables = {name: spark.read.format("kmq").option("table", name).load(url) for name in names}
    counts = {name: table.count() for name, table in tables.items()}
    assert (counts["topics"], counts["partitions"], counts["groups"]) == (3, 4, 2), counts
    assert counts["commits"] >= 3, counts


def _moves_a_group_by_limited_batches(
    spark: SparkSession, store: kmq.Store, url: str, folder: Path
) -> None:
    stream = spark.readStream.format("kmq").options(
        subscribe="orders", startingOffsets="earliest", group="stream", maxOffsetsPerTrigger=40
    )
    writer = stream.load(url).writeStream.format("noop").trigger(availableNow=True)
    query = patiently(_to_its_end, writer.option("checkpointLocation", str(folder / "limited")))
    sizes = [batch["numInputRows"] for batch in query.recentProgress]
    assert [size for size in sizes if size] == [40, 40, 20], sizes
    assert sum(store.describe_group("stream").committed["orders"].values()) == 100
    assert sum(kmq.lag(query)["orders"].values()) == 0


def _recognises_a_topic_that_was_made_again(
    spark: SparkSession, store: kmq.Store, url: str, folder: Path
) -> None:
    store.create_topic("again")
    rows = spark.range(3).selectExpr("cast(id as string) value")
    stream = spark.readStream.format("kmq").option("subscribe", "again")
    writer = stream.option("startingOffsets", "earliest").load(url).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(folder / "again")).trigger(availableNow=True)
    rows.write.format("kmq").mode("append").option("topic", "again").save(url)
    patiently(_to_its_end, writer)
    store.delete_topic("again")
    store.create_topic("again")
    rows.write.format("kmq").mode("append").option("topic", "again").save(url)
    with pytest.raises(PySparkException, match="made again"):
        _to_its_end(writer)


def _lives_through_long_pauses(
    spark: SparkSession, store: kmq.Store, url: str, folder: Path
) -> None:
    """Triggers further apart than Spark's processes in Python once waited for a word (15 s)."""
    store.create_topic("slow")
    stream = spark.readStream.format("kmq").option("subscribe", "orders")
    frame = stream.option("startingOffsets", "earliest").load(url).select("value")
    writer = frame.writeStream.format("kmq").option("topic", "slow")
    writer = writer.option("checkpointLocation", str(folder / "slow"))
    writer = writer.trigger(processingTime="20 seconds")
    query = patiently(lambda: _wait_for(writer.start(url), store, 100))
    with store.producer() as producer:
        producer.send("orders", b"later").result(timeout=30)
    _wait_for(query, store, 101)
    query.stop()


def _wait_for(query: StreamingQuery, store: kmq.Store, count: int) -> StreamingQuery:
    deadline = time.monotonic() + 200
    while store.offsets("slow")[0][1] < count:
        if error := query.exception():
            raise error
        assert time.monotonic() < deadline, f"there are not {count} records"
        time.sleep(0.1)
    return query


def _to_its_end(writer: DataStreamWriter, url: str | None = None) -> StreamingQuery:
    query = writer.start(url)
    query.awaitTermination()
    return query


if __name__ == "__main__":
    run(Path(sys.argv[1]))
    sys.stdout.write(f"everything holds on Spark {pyspark.__version__}\n")
