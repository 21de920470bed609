"""Finds what only Spark itself refuses: discovery, schemas, option handling, errors at load()."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kmq_spark as kmq
from tests.spark.running import run
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark


def _load(spark: SparkSession, shop: Shop, **options: object) -> DataFrame:
    return spark.read.format("kmq").options(subscribe="orders", **options).load(shop.url)


def _places(frame: DataFrame) -> list[tuple[str, int, int]]:
    return sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())


def _streamed(stream: DataFrame, checkpoint: Path) -> list[tuple[object, ...]]:
    """The rows of a stream up to the end of what is there now."""
    rows: list[tuple[object, ...]] = []
    run(stream, lambda batch, _: rows.extend(map(tuple, batch.collect())), checkpoint)
    return rows


def test_the_format_is_found_without_a_jar_and_without_register(
    spark: SparkSession, shop: Shop
) -> None:
    frame = _load(spark, shop)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert frame.count() == 0


def test_a_record_arrives_with_everything_it_was_sent_with(spark: SparkSession, shop: Shop) -> None:
    when = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    with shop.store.producer() as producer:
        producer.send(
            "orders",
            b"42 EUR",
            b"alice",
            partition=1,
            timestamp=when,
            headers=[("h", b"1"), ("h", None)],
        )
        producer.send("orders", None, b"bob", partition=2)
    alice, bob = _load(spark, shop, includeHeaders=True).orderBy("partition").collect()
    assert (alice.key, alice.value, alice.topic) == (b"alice", b"42 EUR", "orders")
    assert (alice.partition, alice.offset, alice.timestampType) == (1, 0, 0)
    assert alice.timestamp.astimezone(UTC) == when
    assert [(each.key, each.value) for each in alice.headers] == [("h", b"1"), ("h", None)]
    assert (bob.key, bob.value, bob.headers) == (b"bob", None, None)


def test_every_record_is_read_once_whatever_the_tasks(spark: SparkSession, shop: Shop) -> None:
    for partition in (0, 1, 0):
        shop.send("orders", partition, 2_000)
    assert _places(_load(spark, shop)) == shop.places("orders")
    divided = _load(spark, shop, minPartitions=7)
    assert divided.rdd.getNumPartitions() >= 7
    assert _places(divided) == shop.places("orders")


def test_many_small_commits_arrive_as_few_large_batches(spark: SparkSession, shop: Shop) -> None:
    for number in range(60):
        shop.send("orders", number % 3, 1)
    frame = _load(spark, shop)
    assert frame.rdd.getNumPartitions() == 1
    assert _places(frame) == shop.places("orders")


def test_bounds_and_a_group_choose_what_is_read(spark: SparkSession, shop: Shop) -> None:
    sent = shop.send("orders", 0, 10)
    shop.commit("billing", "orders", {0: 6})
    bounds = {
        "STARTINGOFFSETS": '{"orders":{"0":2,"1":-2,"2":-2}}',
        "endingoffsets": '{"orders":{"0":5,"1":-1,"2":-1}}',
    }
    assert _places(_load(spark, shop, **bounds)) == sent[2:5]
    assert _places(_load(spark, shop, group="billing", startingOffsets="group")) == sent[6:]


def test_a_frame_can_be_used_twice(spark: SparkSession, shop: Shop) -> None:
    sent = shop.send("orders", 0, 10)
    frame = _load(spark, shop)
    assert _places(frame.filter("offset = 3")) == sent[3:4]
    shop.send("orders", 0, 5)
    assert _places(frame.union(frame)) == sorted(sent * 2)
    assert frame.count() == 10
    assert _load(spark, shop).count() == 15


def test_a_relative_path_is_the_drivers(spark: SparkSession, shop: Shop) -> None:
    shop.send("orders", 0, 3)
    frame = spark.read.format("kmq").option("subscribe", "orders").load(os.path.relpath(shop.url))
    assert frame.count() == 3


def test_a_view_in_sql_reads_a_topic(spark: SparkSession, shop: Shop) -> None:
    shop.send("orders", 0, 4)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING kmq "
        f"OPTIONS (path '{shop.url}', subscribe 'orders')"
    )
    assert spark.sql("SELECT max(offset) FROM orders").first()[0] == 3


def test_register_makes_the_format_known_again_and_again(spark: SparkSession, shop: Shop) -> None:
    kmq.register(spark)
    kmq.register(spark)
    shop.send("orders", 0, 2)
    assert _load(spark, shop).agg(f.count("*")).first()[0] == 2


#: All that is wrong with options alone is refused in tests/unit/datasource/test_options.py.
REFUSED = {
    "unknown option": ({"minPartition": "2"}, "did you mean 'minPartitions'"),
    "unknown topic": ({"subscribe": "nowhere"}, "Topic[nowhere] doesn't exist."),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("way", ["read", "readStream"])
def test_what_is_wrong_is_refused_at_load(
    spark: SparkSession, shop: Shop, way: str, options: dict[str, str], message: str
) -> None:
    reader = getattr(spark, way).format("kmq").options(**{"subscribe": "orders", **options})
    with pytest.raises(AnalysisException) as raised:
        reader.load(shop.url)
    assert message in str(raised.value)


def test_a_missing_store_is_refused_at_load(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("kmq").option("subscribe", "orders")
    with pytest.raises(AnalysisException, match=r"Store\[.*nowhere\] doesn't exist"):
        reader.load(str(tmp_path / "nowhere"))
    with pytest.raises(AnalysisException, match="the store is missing"):
        reader.load()
    with pytest.raises(AnalysisException, match="a store in memory is seen by one process"):
        reader.load("memory://shop")


def test_a_schema_can_not_be_set_and_a_batch_can_not_begin_at_latest(
    spark: SparkSession, shop: Shop
) -> None:
    reader = spark.read.format("kmq").option("subscribe", "orders").schema("value string")
    with pytest.raises(AnalysisException, match="columns of untyped topics are fixed"):
        reader.load(shop.url).count()
    with pytest.raises(AnalysisException, match="'startingOffsets' is latest"):
        _load(spark, shop, startingOffsets="latest").count()


def test_messages_of_keyed_queues_come_with_queue_and_index_in_batch_and_stream(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    inbox = shop.store.keyed_queues("inbox")
    for seal in (True, False):
        inbox.put_batch(["a/1", "a/2", "b"] * 2, [b"%d" % n for n in range(6)])
        if seal:
            shop.store.seal()
    given = {"subscribe": "inbox", "startingOffsets": "earliest", "queues": "a/*"}
    frame = spark.read.format("kmq").options(**given).load(shop.url)
    assert frame.dtypes[-2:] == [("queue", "binary"), ("index", "bigint")]
    expected = sorted(
        (name.encode(), index, value)
        for name in ("a/1", "a/2")
        for index, value in enumerate(inbox.get(name, 0, 9))
    )
    chosen = ("queue", "index", "value")
    assert sorted(tuple(row) for row in frame.select(*chosen).collect()) == expected
    assert frame.where("queue = 'a/2'").agg(f.max("index")).collect()[0][0] == 3
    stream = spark.readStream.format("kmq").options(**given, maxOffsetsPerTrigger=5).load(shop.url)
    assert sorted(_streamed(stream.select(*chosen), tmp_path / "checkpoint")) == expected


def test_what_retention_keeps_of_queues_comes_with_its_indexes_in_batch_and_stream(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    inbox = shop.store.keyed_queues("inbox")
    for turn in range(4):  # three runs, and what is in none
        inbox.put_batch(["a/1", "a/2", "b"] * 2, [b"%d.%d" % (turn, n) for n in range(6)])
        if turn < 3:
            shop.store.seal()
    given = {"subscribe": "inbox", "startingOffsets": "earliest", "queues": "a/*"}
    planned = spark.read.format("kmq").options(**given).load(shop.url).select("queue", "index")
    assert planned.count() == 16
    shop.store.alter_topic("inbox", retention_bytes=1)
    shop.store.maintain(grace=0)
    assert [inbox.span(name) for name in ("a/1", "b")] == [(6, 8), (6, 8)]
    chosen = ("queue", "index", "value")
    expected = [(n, i, v) for n in (b"a/1", b"a/2") for i, v in enumerate(inbox.get(n, 6, 9), 6)]
    frame = spark.read.format("kmq").options(**given).load(shop.url)
    assert sorted(tuple(row) for row in frame.select(*chosen).collect()) == expected
    with pytest.raises(PythonException, match="were to be read, the log holds 18 to 24"):
        planned.collect()
    stream = spark.readStream.format("kmq").options(**given, maxOffsetsPerTrigger=3).load(shop.url)
    assert sorted(_streamed(stream.select(*chosen), tmp_path / "checkpoint")) == expected
