"""Finds what only Spark itself refuses of typed topics: types, nullability, the sink's columns."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

WHEN = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
LOCAL = WHEN.replace(tzinfo=None)
#: Columns whose values Spark has in a type of its own, with a value and what Spark gives for it.
COLUMNS = {
    "id": (pa.field("id", pa.int64(), nullable=False), 7, 7),
    "small": (pa.field("small", pa.uint8()), 255, 255),
    "large": (pa.field("large", pa.uint64()), 2**64 - 1, Decimal(2**64 - 1)),
    "half": (pa.field("half", pa.float16()), 1.5, 1.5),
    "price": (pa.field("price", pa.decimal128(12, 2)), Decimal("1.50"), Decimal("1.50")),
    "name": (pa.field("name", pa.large_string()), "ä", "ä"),
    "kind": (pa.field("kind", pa.dictionary(pa.int8(), pa.string())), "x", "x"),
    "raw": (pa.field("raw", pa.binary(3)), b"abc", b"abc"),
    "day": (pa.field("day", pa.date32()), date(2024, 2, 29), date(2024, 2, 29)),
    "at": (pa.field("at", pa.timestamp("us", "Europe/Berlin")), WHEN, WHEN),
    "local": (pa.field("local", pa.timestamp("us")), LOCAL, LOCAL),
    "took": (pa.field("took", pa.duration("us")), timedelta(1, 2, 3), timedelta(1, 2, 3)),
    "tags": (pa.field("tags", pa.list_(pa.field("item", pa.string()))), ["a", None], ["a", None]),
    "pair": (pa.field("pair", pa.list_(pa.int8(), 2)), [1, 2], [1, 2]),
    "counts": (pa.field("counts", pa.map_(pa.string(), pa.int64())), {"a": 1}, {"a": 1}),
    "place": (
        pa.field("place", pa.struct([("x", pa.int16()), ("ys", pa.list_(pa.float64()))])),
        {"x": 1, "ys": [0.5]},
        (1, [0.5]),
    ),
}
SCHEMA = pa.schema([field for field, _, _ in COLUMNS.values()])


def _load(spark: SparkSession, shop: Shop, topics: str, **options: object) -> DataFrame:
    return spark.read.format("kmq").options(subscribe=topics, **options).load(shop.url)


def test_a_typed_topic_is_read_as_typed_columns(spark: SparkSession, shop: Shop) -> None:
    shop.create("typed", schema=SCHEMA)
    with shop.store.producer() as producer:
        producer.send("typed", {name: sent for name, (_, sent, _) in COLUMNS.items()})
        producer.send("typed", {"id": 8})
        producer.send("typed", None, "a key")
    frame = _load(spark, shop, "typed", includeMetadata=True)
    metadata = ["_topic", "_partition", "_offset", "_timestamp"]
    assert frame.columns == [*SCHEMA.names, *metadata]
    full, bare, gone = frame.orderBy("_offset").collect()
    seen = full.asDict()
    seen["at"] = seen["at"].astimezone(UTC)
    seen["place"] = tuple(seen["place"])
    assert {name: seen[name] for name in SCHEMA.names} == {
        name: expected for name, (_, _, expected) in COLUMNS.items()
    }
    assert (full._topic, full._partition, full._offset) == ("typed", 0, 0)
    assert [bare[name] for name in SCHEMA.names] == [8] + [None] * (len(SCHEMA) - 1)
    assert [gone[name] for name in SCHEMA.names] == [None] * len(SCHEMA)
    assert _load(spark, shop, "typed").columns == SCHEMA.names


def test_topics_of_one_schema_are_read_together_and_others_are_refused(
    spark: SparkSession, shop: Shop
) -> None:
    schema = pa.schema([("n", pa.int32())])
    for name in ("one", "two"):
        shop.create(name, schema=schema)
        with shop.store.producer() as producer:
            producer.send_arrow(name, pa.table({"n": pa.array([1, 2], pa.int32())}))
    assert sorted(row.n for row in _load(spark, shop, "one,two").collect()) == [1, 1, 2, 2]
    shop.create("other", schema=pa.schema([("m", pa.int32())]))
    with pytest.raises(Exception, match="have different schemas"):
        _load(spark, shop, "one,other")
    with pytest.raises(Exception, match="have different schemas"):
        _load(spark, shop, "one,orders")


def test_a_dataframe_is_written_to_the_topics_own_columns(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    shop.create("typed", schema=schema)
    shop.create("copy", schema=schema)
    frame = spark.range(100).selectExpr(
        "id", "concat('n', id) name", "cast(id as string) _key", "'ignored' other"
    )
    frame.write.format("kmq").mode("append").option("topic", "typed").save(shop.url)
    source = spark.readStream.format("kmq").option("startingOffsets", "earliest")
    stream = source.option("subscribe", "typed").load(shop.url)
    writer = stream.writeStream.format("kmq").option("topic", "copy")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start(shop.url).awaitTermination(120)
    for topic in ("typed", "copy"):
        found = sorted(
            shop.store.read(topic, columns=["id", "name"]).read_all().to_pylist(), key=str
        )
        expected = [{"id": n, "name": f"n{n}"} for n in range(100)]
        assert found == sorted(expected, key=str)
    assert shop.store.read("typed", columns=["_key"]).read_all().column(0).null_count == 0
    wrong = spark.range(1).selectExpr("cast(id as string) id")
    with pytest.raises(Exception, match="'id' for topic typed"):
        wrong.write.format("kmq").mode("append").option("topic", "typed").save(shop.url)
