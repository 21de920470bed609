"""Finds rows that a real write loses or repeats: replays, aborts, failing tasks, two queries."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PythonException,
    StreamingQueryException,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import kmq_spark as kmq
from tests.spark.lost_answer import LostAnswer
from tests.spark.running import forget_last_commit, load, run
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _totals(shop: Shop) -> None:
    shop.create("totals", 2)


def _save(frame: DataFrame, shop: Shop, mode: str = "append", **options: str) -> None:
    given = {"topic": "totals", **options}
    frame.write.format("kmq").mode(mode).options(**given).save(shop.url)


def _start(frame: DataFrame, shop: Shop, checkpoint: Path, source: str = "kmq") -> StreamingQuery:
    writer = frame.writeStream.format(source).option("topic", "totals")
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start(shop.url)


def _copy(spark: SparkSession, shop: Shop, checkpoint: Path, source: str = "kmq") -> None:
    frame = load(spark, shop, maxOffsetsPerTrigger=4).select("key", "value")
    assert _start(frame, shop, checkpoint, source).awaitTermination(120)


def test_a_batch_write_is_one_commit_that_reads_back(spark: SparkSession, shop: Shop) -> None:
    lsn = shop.lsn()
    _save(spark.range(0, 5_000, 1, 4).selectExpr("cast(id as string) value"), shop)
    assert shop.lsn() == lsn + 1
    frame = spark.read.format("kmq").option("subscribe", "totals").load(shop.url)
    numbers = frame.selectExpr("cast(cast(value as string) as int) n").collect()
    assert sorted(row.n for row in numbers) == list(range(5_000))


def test_small_writes_without_keys_reach_every_partition(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    for _ in range(8):
        _save(spark.range(0, 1, 1, 1).selectExpr("'x' value"), shop)
    by_batches = [end for _, end in shop.store.offsets("totals").values()]
    assert sum(by_batches) == 8
    assert min(by_batches) > 0
    shop.send("orders", 0, 8)
    frame = load(spark, shop, maxOffsetsPerTrigger=2).select("value")
    assert _start(frame, shop, tmp_path / "checkpoint").awaitTermination(120)
    ends = [end for _, end in shop.store.offsets("totals").values()]
    assert [end - before for end, before in zip(ends, by_batches, strict=True)] == [4, 4]


def test_every_column_of_a_record_can_be_written(spark: SparkSession, shop: Shop) -> None:
    frame = spark.range(1).selectExpr(
        "cast('v' as binary) value",
        "'k' key",
        "1 partition",
        "'totals' topic",
        "timestamp'2020-01-02 03:04:05' timestamp",
        "'x' other",
        "array(named_struct('key', 'h', 'value', cast('1' as binary))) headers",
        "map('p', 'text') properties",
    )
    frame.write.format("kmq").mode("append").save(shop.url)
    (row,) = shop.store.read("totals").read_all().to_pylist()
    assert (row["key"], row["value"], row["partition"]) == (b"k", b"v", 1)
    assert row["headers"] == [{"key": "h", "value": b"1"}]
    assert [(name, value["text"]) for name, value in row["properties"]] == [("p", "text")]
    assert row["timestamp"].isoformat() == "2020-01-02T03:04:05+00:00"


REFUSED = {
    "no value": ("id", {}, "Required attribute 'value' not found"),
    "wrong type": ("id value", {}, "value attribute unsupported type bigint"),
    "unknown topic": ("'x' value", {"topic": "nowhere"}, r"Topic\[nowhere\] doesn't exist"),
    "unknown option": ("'x' value", {"topics": "totals"}, "did you mean 'topic'"),
    "option of a read": ("'x' value", {"subscribe": "totals"}, "'subscribe' belongs to a read"),
}


@pytest.mark.parametrize(("columns", "options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_write_that_can_not_work_is_refused_before_any_task(
    spark: SparkSession, shop: Shop, columns: str, options: dict[str, str], message: str
) -> None:
    lsn = shop.lsn()
    writer = spark.range(3).selectExpr(columns).write.format("kmq").mode("append")
    with pytest.raises(AnalysisException, match=message):
        writer.options(**{"topic": "totals", **options}).save(shop.url)
    assert shop.lsn() == lsn


def test_a_log_is_appended_to_and_nothing_else(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    frame = spark.range(3).selectExpr("'x' value")
    with pytest.raises(AnalysisException, match="a log is only appended to"):
        _save(frame, shop, mode="overwrite")
    with pytest.raises(AnalysisException, match='Please use either the "Append"'):
        frame.write.format("kmq").option("topic", "totals").save(shop.url)
    counts = load(spark, shop).groupBy("key").count().selectExpr("key", "string(count) value")
    shop.send("orders", 0, 3)
    complete = counts.writeStream.outputMode("complete").format("kmq").option("topic", "totals")
    complete = complete.option("checkpointLocation", str(tmp_path / "complete"))
    with pytest.raises(StreamingQueryException, match="a log is only appended to"):
        complete.trigger(availableNow=True).start(shop.url).awaitTermination(120)
    assert shop.places("totals") == []


def test_spark_itself_refuses_update_mode_for_sinks_in_python(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 7)
    counts = load(spark, shop).groupBy("key").count().selectExpr("key", "string(count) value")
    writer = counts.writeStream.outputMode("update").format("kmq").option("topic", "totals")
    writer = writer.option("checkpointLocation", str(tmp_path / "update"))
    with pytest.raises(StreamingQueryException, match="kmq does not support Update mode"):
        writer.trigger(availableNow=True).start(shop.url).awaitTermination(120)


def test_spark_itself_keeps_asynchronous_progress_to_its_own_sinks(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    writer = load(spark, shop).writeStream.format("kmq").option("topic", "totals")
    writer = writer.option("asyncProgressTrackingEnabled", True)
    with pytest.raises(IllegalArgumentException, match="does not support async progress tracking"):
        writer.option("checkpointLocation", str(tmp_path / "async")).start(shop.url)


def test_windows_that_are_over_are_appended(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    with shop.store.producer() as producer:
        for minute in (0, 1, 2, 60, 61):
            when = datetime(2024, 1, 1, minute // 60, minute % 60, tzinfo=UTC)
            producer.send("orders", b"x", partition=0, timestamp=when).result(timeout=30)
    counted = (
        load(spark, shop, maxOffsetsPerTrigger=5)
        .withWatermark("timestamp", "10 minutes")
        .groupBy(f.window("timestamp", "30 minutes"))
        .count()
        .selectExpr("string(window.start) key", "string(count) value")
    )
    assert _start(counted, shop, tmp_path / "windows").awaitTermination(120)
    assert shop.values("totals") == [b"3"]


def test_what_a_failing_task_left_behind_is_invisible(spark: SparkSession, shop: Shop) -> None:
    lsn = shop.lsn()

    def fail_late(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"value": ["x" * 1_000] * 1_000})
            if (frame["id"] >= 3).any():
                raise ValueError("this task breaks")

    frame = spark.range(0, 4, 1, 4).mapInPandas(fail_late, "value string")
    with pytest.raises(PythonException, match="this task breaks"):
        _save(frame, shop)
    assert (shop.lsn(), shop.places("totals")) == (lsn, [])


def test_a_row_that_can_not_be_stored_fails_the_whole_write(
    spark: SparkSession, shop: Shop
) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("'x' value", "int(if(id = 99, 7, 0)) partition")
    with pytest.raises(PythonException, match="totals has partitions 0 to 1, not 7"):
        _save(frame, shop)
    assert shop.places("totals") == []


def test_a_stream_that_is_replayed_writes_every_record_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    for _ in range(3):
        shop.send("orders", 0, 6)
        _copy(spark, shop, tmp_path / "checkpoint")
        forget_last_commit(tmp_path / "checkpoint")
    _copy(spark, shop, tmp_path / "checkpoint")
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))


def test_a_queue_gets_the_rows_of_a_batch_and_of_a_replayed_stream_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.store.create_queue("jobs")
    frame = spark.range(0, 20, 1, 2).selectExpr("string(id) value")
    frame.write.format("kmq").mode("append").option("queue", "jobs").save(shop.url)
    for _ in range(2):
        shop.send("orders", 2, 6)
        rows = load(spark, shop, maxOffsetsPerTrigger=4).writeStream.format("kmq")
        rows = rows.option("queue", "jobs").option("checkpointLocation", str(tmp_path / "jobs"))
        assert rows.trigger(availableNow=True).start(shop.url).awaitTermination(120)
        forget_last_commit(tmp_path / "jobs")
    received = [each.value for each in shop.store.queue("jobs").receive(99)]
    assert received == [*(b"%d" % n for n in range(20)), *shop.values("orders")]


def test_a_batch_function_that_names_its_writes_is_replayed_without_a_double(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    def copy(frame: DataFrame, number: int) -> None:
        for topic in ("totals", "copies"):
            named = {"topic": topic, "txnAppId": "copy", "txnVersion": str(number)}
            _save(frame.select("key", "value"), shop, **named)

    shop.create("copies")
    for _ in range(2):
        shop.send("orders", 0, 6)
        run(load(spark, shop, maxOffsetsPerTrigger=4), copy, tmp_path / "checkpoint")
        forget_last_commit(tmp_path / "checkpoint")
    run(load(spark, shop, maxOffsetsPerTrigger=4), copy, tmp_path / "checkpoint")
    for topic in ("totals", "copies"):
        assert sorted(shop.values(topic)) == sorted(shop.values("orders"))


def test_the_order_of_sorted_tasks_is_the_order_of_the_log(spark: SparkSession, shop: Shop) -> None:
    numbers = spark.range(0, 60_000, 1, 3).selectExpr("id", "lpad(string(id), 9, '0') value")
    backwards = numbers.withColumn("partition", f.lit(1)).sortWithinPartitions(f.desc("id"))
    _save(backwards, shop)
    third = 20_000
    assert [int(value) for value in shop.values("totals")] == [
        n for end in (third, 2 * third, 3 * third) for n in reversed(range(end - third, end))
    ]


def test_an_abort_after_a_commit_that_succeeded_destroys_nothing(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    spark.dataSource.register(LostAnswer)
    shop.send("orders", 0, 3)
    with pytest.raises(StreamingQueryException, match="the answer was lost"):
        _copy(spark, shop, tmp_path / "checkpoint", "kmq_lost_answer")
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))
    shop.send("orders", 0, 2)
    _copy(spark, shop, tmp_path / "checkpoint")
    assert sorted(shop.values("totals")) == sorted(shop.values("orders"))


def test_two_queries_append_to_one_topic_at_the_same_time(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 20)
    shop.store.log.sync(shop.lsn())  # who opens it while the other query syncs sees no more
    frame = load(spark, shop, maxOffsetsPerTrigger=5).select("key", "value")
    queries = [_start(frame, shop, tmp_path / name) for name in ("one", "two")]
    assert all(query.awaitTermination(120) for query in queries)
    assert sorted(shop.values("totals")) == sorted(shop.values("orders") * 2)


def test_many_partitions_of_a_shuffle_arrive_as_few_batches_in_the_log(
    spark: SparkSession, shop: Shop
) -> None:
    _save(spark.range(0, 400, 1, 20).selectExpr("string(id) value", "string(id) key"), shop)
    topic = shop.store.log.refresh().topic("totals")
    assert sum(len(topic.places(p, 0, end)) for p, (_, end) in topic.offsets().items()) == 2


def test_a_thread_of_ones_own_writes_once_it_has_registered_the_format(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.send("orders", 0, 3)

    def write() -> None:
        kmq.register(spark)
        _save(spark.range(2).selectExpr("string(id) value"), shop)
        _copy(spark, shop, tmp_path / "checkpoint")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert shop.store.describe_topic("totals").rows == 2 + 3
