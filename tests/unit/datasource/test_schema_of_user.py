"""Finds values that a schema of the user's own, or one that is old, would change silently."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from kmq_spark.datasource.source import KmqDataSource
from kmq_storage.errors import InvalidRequestError
from tests.spark.shop import Shop

SCHEMA = pa.schema([("id", pa.int32()), ("topic", pa.string()), ("large", pa.uint64())])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    made.create("typed", schema=SCHEMA)
    return made


def _source(shop: Shop, topic: str = "typed") -> KmqDataSource:
    return KmqDataSource({"path": shop.url, "subscribe": topic})


def _send(shop: Shop, *values: dict[str, object], topic: str = "typed") -> None:
    with shop.store.producer() as producer:
        for value in values:
            producer.send(topic, value)


def _read(source: KmqDataSource, schema: StructType) -> list[dict[str, object]]:
    reader = source.reader(schema)
    return [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


def test_a_schema_of_the_users_own_chooses_columns(shop: Shop) -> None:
    _send(shop, {"id": 1, "topic": "mine", "large": 2})
    wanted = StructType([StructField("topic", StringType()), StructField("id", IntegerType())])
    assert _read(_source(shop), wanted) == [{"topic": "mine", "id": 1}]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (StructType().add("other", "string"), "'other' of type string is not one of the topic's: "),
        (StructType().add("id", "double"), r"'id' of type double is not .*struct<id:int,topic:str"),
        (StructType().add("large", "decimal(4,1)"), "'large' of type decimal"),
        (StructType().add("id", "integer", nullable=False), "'id' as not null: .* be null"),
        (
            StructType().add("id", "integer").add("id", "integer"),
            r"schema\(...\) names a column twice",
        ),
        (StructType(), r"schema\(...\) names no column"),
    ],
    ids=str,
)
def test_a_schema_of_the_users_own_can_do_no_more_than_choose_columns(
    shop: Shop, wanted: StructType, told: str
) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        _source(shop).reader(wanted)


def test_columns_of_a_view_over_untyped_topics_are_refused_with_the_way_out(shop: Shop) -> None:
    shop.create("plain")
    told = (
        r"fixed \(struct<key:binary,.*\): leave out the columns of schema\(...\) or of CREATE VIEW "
        r"name \(...\) USING kmq, and choose .* by a SELECT. If there are none, load again"
    )
    with pytest.raises(InvalidRequestError, match=told):
        _source(shop, "plain").reader(StructType().add("a", "integer"))


def test_a_double_that_a_read_of_floats_would_round_is_refused(shop: Shop) -> None:
    shop.create("sizes", schema=pa.schema([("x", pa.float32())]))
    source = _source(shop, "sizes")
    loaded = source.schema()
    shop.store.alter_topic("sizes", schema=pa.schema([("x", pa.float64())]))
    _send(shop, {"x": 0.5}, {"x": None}, {"x": float("nan")}, topic="sizes")
    assert [row["x"] for row in _read(source, loaded)][:2] == [0.5, None]
    _send(shop, {"x": 0.1}, topic="sizes")
    with pytest.raises(InvalidRequestError, match=r"float can't: it would be rounded; .* again"):
        _read(source, loaded)


def test_a_read_whose_topics_are_others_by_now_is_told_to_load_again(shop: Shop) -> None:
    source = KmqDataSource({"path": shop.url, "subscribePattern": "^(typed|keyed|plain)$"})
    typed = source.schema()
    shop.delete("typed")
    with pytest.raises(InvalidRequestError, match=r"load again: the topics .* are gone"):
        source.reader(typed)
    shop.store.keyed_queues("keyed")
    keyed = source.schema()
    shop.create("plain")
    with pytest.raises(InvalidRequestError, match=r"^load again: .*others? .*\(keyed, plain\)"):
        source.reader(keyed)
