"""Finds reads that give other columns than those asked for, in other words or another order."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kmq_spark.datasource.source import KmqDataSource
from kmq_storage.errors import InvalidRequestError
from tests.spark.shop import Shop

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("price", pa.float64())])
PROPERTIES = {"n": 5, "f": 1.5, "t": "text", "b": b"\0\1", "yes": True, "no": False}
AS_TEXT = [("n", "5"), ("f", "1.5"), ("t", "text"), ("b", "AAE="), ("yes", "true"), ("no", "false")]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop")
    made.create("orders", 2)
    made.create("typed", schema=SCHEMA)
    made.create("alike", schema=SCHEMA)
    with made.store.producer(linger=0) as producer:
        extras: dict[str, Any] = {"headers": [("h", b"1"), ("h", None)], "properties": PROPERTIES}
        for topic in ("orders", "typed"):
            value: Any = b"v" if topic == "orders" else {"id": 1, "name": "a", "price": 0.5}
            producer.send(topic, value, b"k", partition=0, **extras)
            producer.send(topic, value, b"k", partition=0)
        producer.send("alike", {"id": 2, "name": "b", "price": 0.25})
    return made


def _read(shop: Shop, topics: str, **options: str) -> pa.Table:
    source = KmqDataSource({"path": shop.url, "subscribe": topics, **options})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source.reader(schema)))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches)
    assert table.column_names == schema.names
    return table


@pytest.mark.parametrize("sealed", [False, True])
def test_properties_are_a_map_of_texts(shop: Shop, sealed: bool) -> None:
    if sealed:
        shop.store.seal()
    table = _read(shop, "orders", includeProperties="true")
    assert table.column_names[-2:] == ["timestampType", "properties"]
    assert table["properties"].to_pylist() == [AS_TEXT, None]
    assert _read(shop, "orders", includeHeaders="true", includeProperties="true").column_names[
        -2:
    ] == ["headers", "properties"]


@pytest.mark.parametrize("sealed", [False, True])
def test_columns_come_as_they_were_named_and_in_that_order(shop: Shop, sealed: bool) -> None:
    if sealed:
        shop.store.seal()
    assert _read(shop, "orders", columns="offset, headers,value").to_pylist() == [
        {
            "offset": 0,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "value": b"v",
        },
        {"offset": 1, "headers": None, "value": b"v"},
    ]
    assert _read(shop, "typed", columns="price,_offset,id,_topic").to_pylist() == [
        {"price": 0.5, "_offset": offset, "id": 1, "_topic": "typed"} for offset in (0, 1)
    ]


def test_a_typed_topic_gives_its_extras_when_they_are_named(shop: Shop) -> None:
    first, second = _read(shop, "typed", columns="_key,_headers,_properties").to_pylist()
    assert first == {
        "_key": b"k",
        "_headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        "_properties": AS_TEXT,
    }
    assert second == {"_key": b"k", "_headers": None, "_properties": None}


def test_columns_may_name_what_other_options_ask_for(shop: Shop) -> None:
    table = _read(shop, "orders", columns="headers,value", includeHeaders="true")
    assert table.column_names == ["headers", "value"]


def test_topics_of_one_schema_are_one_frame(shop: Shop) -> None:
    table = _read(shop, "typed,alike", columns="_topic,name")
    assert table.to_pylist() == [
        {"_topic": "alike", "name": "b"},
        *[{"_topic": "typed", "name": "a"}] * 2,
    ]


def test_what_is_not_named_is_not_converted(shop: Shop) -> None:
    source = KmqDataSource({"path": shop.url, "subscribe": "typed", "columns": "name"})
    loaded = source.schema()
    shop.store.alter_topic("typed", schema=pa.schema([("id", pa.int64()), *list(SCHEMA)[1:]]))
    with shop.store.producer() as producer:
        producer.send("typed", {"id": 2**40, "name": "large"})
    reader = source.reader(loaded)
    names = [name for task in reader.partitions() for b in reader.read(task) for name in b["name"]]
    assert [name.as_py() for name in names] == ["a", "a", "large"]


REFUSED = {
    "misspelt": ("orders", {"columns": "valu"}, r"'valu', which no record has \(did you mean 'val"),
    "of no topic": ("orders", {"columns": "zzz"}, "'zzz', which no record has; there are key, val"),
    "of untyped topics": ("typed", {"columns": "value"}, "'value', which no record has"),
    "of typed topics": ("orders", {"columns": "_offset"}, "did you mean 'offset'"),
    "headers of a typed topic": (
        "typed",
        {"includeHeaders": "true"},
        "'includeHeaders' is for unt",
    ),
    "properties of a typed topic": (
        "typed",
        {"includeProperties": "true"},
        "'includeProperties' is for untyped topics.*'columns' may name",
    ),
    "metadata of an untyped topic": (
        "orders",
        {"includeMetadata": "true"},
        "'includeMetadata' is for typed topics.* untyped topics have topic, partition, offset and",
    ),
    "metadata of chosen columns of an untyped topic": (
        "orders",
        {"includeMetadata": "true", "columns": "value,offset"},
        "'includeMetadata' is for typed topics",
    ),
    "headers that are asked for and left out": (
        "orders",
        {"includeHeaders": "true", "columns": "value,offset"},
        "'includeHeaders' asks for headers, and option 'columns' leaves that out",
    ),
    "properties that are asked for and left out": (
        "orders",
        {"includeProperties": "true", "columns": "value"},
        "'includeProperties' asks for properties",
    ),
    "metadata that are asked for and left out": (
        "typed",
        {"includeMetadata": "true", "columns": "name,_offset,_partition"},
        "'includeMetadata' asks for _topic, _timestamp, and",
    ),
    "two kinds of topics": ("orders,typed", {}, "topics orders and typed have different schemas"),
}


@pytest.mark.parametrize(("topics", "options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_columns_that_no_record_has_are_refused_at_load(
    shop: Shop, topics: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        _read(shop, topics, **options)


def test_a_column_that_spark_has_no_type_for_can_be_left_out(shop: Shop) -> None:
    schema = pa.schema([("id", pa.int64()), ("exact", pa.decimal256(50, 2))])
    shop.create("wide", schema=schema)
    with shop.store.producer() as producer:
        producer.send("wide", {"id": 7, "exact": Decimal("1.25")})
    assert _read(shop, "wide", columns="id,_offset").to_pylist() == [{"id": 7, "_offset": 0}]
    with pytest.raises(InvalidRequestError, match=r"'exact' .* leave it out by option 'columns'"):
        _read(shop, "wide", columns="id,exact")
