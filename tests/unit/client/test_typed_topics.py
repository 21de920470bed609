"""Typed topics: what they take, what they refuse by the column's name, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.unit.client.stored import lsn, records, values
from tests.unit.client.typed import NOTHING, SCHEMA

LOCAL = datetime(1900, 1, 2, 3, 4, 5, 6, tzinfo=UTC).replace(tzinfo=None)


@dataclass
class Place:
    """A part of an order."""

    x: int
    y: int | None = None


@dataclass
class Order:
    """What an application has."""

    id: int
    name: str
    place: Place


def _send(store: kmq.Store, *arguments: Any, **options: Any) -> kmq.RecordMetadata:
    with store.producer() as producer:
        return producer.send("t", *arguments, **options).result(10)


# --- the topic ---------------------------------------------------------------------------


def test_a_topic_tells_its_schema(typed: kmq.Store):
    typed.create_topic("plain")
    assert typed.describe_topic("t").schema == SCHEMA
    assert typed.describe_topic("t").settings.schema == SCHEMA
    assert typed.describe_topic("plain").schema is None


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (pa.field("_own", pa.int8()), "'_own' begins with '_'"),
        (pa.field("", pa.int8()), "has no name"),
        (pa.field("x", pa.uuid()), "'x' of type .* extension types are not supported"),
        (pa.field("x", pa.list_(pa.uuid())), "'x' of type .* extension types are not supported"),
        (pa.field("x", pa.run_end_encoded(pa.int32(), pa.int8())), "run-end"),
        (pa.field("x", pa.dense_union([pa.field("a", pa.int8())])), "unions"),
        (pa.field("x", pa.list_view(pa.int8())), "list views are not supported, use list"),
        (pa.field("x", pa.dictionary(pa.int8(), pa.string_view())), "dictionaries of string_view"),
        (pa.field("x", pa.dictionary(pa.int8(), pa.list_(pa.int8()))), "dictionaries of list"),
        (pa.field("x", pa.timestamp("us", "Nowhere/Land")), "time zone is unknown"),
    ],
)
def test_a_column_that_no_topic_can_have_is_refused_by_name(
    store: kmq.Store, field: pa.Field, reason: str
):
    with pytest.raises(kmq.InvalidRequestError, match=reason) as refused:
        store.create_topic("t", schema=pa.schema([("a", pa.int8()), field]))
    assert refused.value.context["column"] == field.name
    assert store.topics() == []


@pytest.mark.parametrize(
    "schema", [pa.schema([]), {"a": pa.int8()}, pa.schema([("a", pa.int8()), ("a", pa.int8())])]
)
def test_what_is_no_schema_of_columns_is_refused(store: kmq.Store, schema: Any):
    with pytest.raises(kmq.InvalidRequestError, match=r"schema|'a' is there twice"):
        store.create_topic("t", schema=schema)


def test_a_second_create_keeps_the_first_schema_and_warns(typed: kmq.Store):
    with pytest.warns(
        kmq.KmqWarning, match=r"schema=\(id int32 not null, .*\(asked: \(id int64\)\)"
    ):
        typed.create_topic("t", partitions=2, schema=pa.schema([("id", pa.int64())]))
    typed.create_topic("t", partitions=2, schema=SCHEMA)
    assert typed.describe_topic("t").schema == SCHEMA


# --- single records -----------------------------------------------------------------------


def test_every_kind_of_column_comes_back_as_it_was_sent(typed: kmq.Store):
    value = {
        "id": -5,
        "name": "ä\0",
        "price": Decimal("-12.50"),
        "at": datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC),
        "local": LOCAL,
        "day": date(1, 1, 1),
        "clock": time(23, 59, 59),
        "took": timedelta(days=-1),
        "half": 0.5,
        "raw": b"\0\1",
        "tags": ["a", ""],
        "pair": [1, None],
        "place": {"x": 1, "y": None},
        "counts": [("a", 1), ("b", None)],
        "kind": "x",
        "flag": False,
    }
    _send(typed, value, "key", headers={"h": b"1"}, properties={"n": 1})
    (record,) = records(typed, "t")
    assert record.value == value
    assert (record.key, record.headers, record.properties) == (b"key", (("h", b"1"),), {"n": 1})
    assert record.value["at"].utcoffset() == timedelta(hours=2)


def test_a_dataclass_is_its_fields(typed: kmq.Store):
    _send(typed, Order(7, "bob", Place(1)))
    assert values(typed, "t") == [NOTHING | {"id": 7, "name": "bob", "place": {"x": 1, "y": None}}]


def test_a_map_is_sent_as_a_dict_too_and_comes_back_as_pairs(typed: kmq.Store):
    _send(typed, {"id": 1, "counts": {"a": 1}})
    assert values(typed, "t") == [NOTHING | {"id": 1, "counts": [("a", 1)]}]


def test_what_is_changed_after_the_call_is_not_sent(typed: kmq.Store):
    tags, value = ["a"], {"id": 1}
    value["tags"] = tags
    with typed.producer(linger=5) as producer:
        future = producer.send("t", value)
        tags.append("b")
        value["id"] = 2
        future.result(10)
    assert values(typed, "t") == [NOTHING | {"id": 1, "tags": ["a"]}]


@pytest.mark.parametrize(
    ("members", "column", "reason"),
    [
        ({}, "id", "is missing, but not nullable"),
        ({"id": None}, "id", "is None, but not nullable"),
        ({"id": 1, "nmae": "x"}, "nmae", r"no column 'nmae' \(did you mean 'name'\?\)"),
        ({"id": 1, 5: "x"}, 5, "no column 5"),
        ({"id": "1"}, "id", "'1' is no int"),
        ({"id": 1.0}, "id", "1.0 is no int"),
        ({"id": True}, "id", "True is no int"),
        ({"id": 2**31}, "id", "is outside"),
        ({"id": 1, "name": b"x"}, "name", "is no text"),
        ({"id": 1, "name": "\ud800"}, "name", "no valid text"),
        ({"id": 1, "price": 1.5}, "price", "is no Decimal"),
        ({"id": 1, "price": Decimal("1.555")}, "price", "does not fit"),
        ({"id": 1, "price": Decimal(10**6)}, "price", "does not fit"),
        ({"id": 1, "at": LOCAL}, "at", "no datetime with a time zone"),
        ({"id": 1, "at": datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)}, "at", "would become"),
        ({"id": 1, "at": 5}, "at", "no datetime with a time zone"),
        ({"id": 1, "at": pd.NaT}, "at", "no datetime with a time zone"),
        ({"id": 1, "local": pd.NaT}, "local", "NaT does not fit"),
        ({"id": 1, "local": datetime(2024, 1, 1, tzinfo=UTC)}, "local", "without a time zone"),
        ({"id": 1, "day": LOCAL}, "day", "is no date"),
        ({"id": 1, "clock": time(1, 2, 3, 4)}, "clock", "would become"),
        ({"id": 1, "took": timedelta(microseconds=1)}, "took", "would become"),
        ({"id": 1, "half": 1e5}, "half", "too large"),
        ({"id": 1, "half": "1"}, "half", "is no float"),
        ({"id": 1, "raw": b"abc"}, "raw", "3 bytes are not 2"),
        ({"id": 1, "raw": "ab"}, "raw", "is no bytes"),
        ({"id": 1, "tags": "ab"}, "tags", "is no list"),
        ({"id": 1, "tags": [None]}, "tags", "'item' is None, but not nullable"),
        ({"id": 1, "tags": [1]}, "tags", "1 is no text"),
        ({"id": 1, "pair": [1]}, "pair", "1 items are not 2"),
        ({"id": 1, "place": {"y": 1}}, "place", "'x' is None, but not nullable"),
        ({"id": 1, "place": {"x": 1, "z": 1}}, "place", "no field 'z'"),
        ({"id": 1, "place": 5}, "place", "no dict or dataclass"),
        ({"id": np.timedelta64(1, "s")}, "id", "is no int"),
        ({"id": 1, "half": np.timedelta64(1, "s")}, "half", "is no float"),
        ({"id": 1, "counts": 5}, "counts", "no dict and no pairs"),
        ({"id": 1, "counts": ""}, "counts", "no dict and no pairs"),
        ({"id": 1, "counts": [{"key": "a", "value": 1}]}, "counts", "no dict and no pairs"),
        ({"id": 1, "counts": {None: 1}}, "counts", "'key' is None, but not nullable"),
        ({"id": 1, "counts": iter([("a", 1)])}, "counts", "only once: make a list"),
        ({"id": 1, "tags": iter("a")}, "tags", "only once: make a list"),
        ({"id": 1, "kind": 5}, "kind", "5 is no text"),
        ({"id": 1, "flag": 1}, "flag", "1 is no bool"),
    ],
)
def test_a_wrong_value_is_refused_at_once_by_its_column(
    typed: kmq.Store, members: dict[Any, Any], column: object, reason: str
):
    before = lsn(typed)
    with typed.producer() as producer:
        with pytest.raises(kmq.InvalidRequestError, match=reason) as refused:
            producer.send("t", members)
        with pytest.raises(kmq.InvalidRequestError, match=reason):
            producer.send_batch("t", [{"id": 1}, members])
    assert refused.value.context["column"] == column
    assert lsn(typed) == before


@pytest.mark.parametrize("zone", ["Europe/Paris", "America/New_York", "UTC"])
def test_instants_of_an_hour_that_a_clock_shows_twice_are_kept(store: kmq.Store, zone: str):
    store.create_topic("t", schema=pa.schema([("at", pa.timestamp("us", zone))]))
    hours = [datetime(2024, 10, 26, 23, 30, tzinfo=UTC), datetime(2024, 11, 3, 4, 30, tzinfo=UTC)]
    instants = [hour + timedelta(hours=more) for hour in hours for more in range(4)]
    with store.producer() as producer:
        for each in instants:
            producer.send("t", {"at": each})
            producer.send("t", {"at": each.astimezone(ZoneInfo(zone))})
    stored = [value["at"].astimezone(UTC) for value in values(store, "t")]
    assert stored == [each for each in instants for _ in range(2)]


@pytest.mark.parametrize("value", [b"bytes", "text"])
def test_bytes_for_a_typed_topic_fail_alone(typed: kmq.Store, value: object):
    with typed.producer(linger=0.2) as producer:
        first, wrong, last = (producer.send("t", each) for each in ({"id": 1}, value, {"id": 2}))
        assert (first.result(10).offset, last.result(10).offset) == (0, 1)
        with pytest.raises(kmq.InvalidRequestError, match="topic t is typed"):
            wrong.result(10)
        with pytest.raises(kmq.InvalidRequestError, match="topic t is typed"):
            producer.send_batch("t", [{"id": 3}, value]).result(10)
    assert [each["id"] for each in values(typed, "t")] == [1, 2]


@pytest.mark.parametrize("value", [5, [1], object()])
def test_what_is_neither_bytes_nor_columns_is_refused_by_what_the_topic_takes(
    typed: kmq.Store, value: object
):
    typed.create_topic("plain")
    with typed.producer() as producer:
        for call in (
            lambda topic: producer.send(topic, value),
            lambda topic: producer.send_batch(topic, [value]),
        ):
            with pytest.raises(kmq.InvalidRequestError, match="topic t is typed: value must be a"):
                call("t")
            with pytest.raises(kmq.InvalidRequestError, match="value must be bytes, text or None"):
                call("plain")


def test_a_dict_for_an_untyped_topic_is_refused_at_once(store: kmq.Store):
    store.create_topic("t")
    with (
        store.producer() as producer,
        pytest.raises(kmq.InvalidRequestError, match="topic t is untyped"),
    ):
        producer.send("t", {"id": 1})


def test_a_dict_for_a_topic_that_is_not_there_fails_through_the_future(store: kmq.Store):
    with store.producer() as producer, pytest.raises(kmq.NotFoundError, match=r"Topic\[t\]"):
        producer.send("t", {"id": 1}).result(10)


def test_a_topic_made_anew_as_another_kind_refuses_what_waits(typed: kmq.Store):
    with typed.producer(linger=30) as producer:
        waits = producer.send("t", {"id": 1})
        typed.delete_topic("t")
        typed.create_topic("t")
        with pytest.raises(kmq.InvalidRequestError, match="topic t is untyped"):
            waits.result(10)
        bytes_wait = producer.send("t", b"x")
        typed.delete_topic("t")
        typed.create_topic("t", schema=pa.schema([("id", pa.string())]))
        with pytest.raises(kmq.InvalidRequestError, match="topic t is typed"):
            bytes_wait.result(10)


# --- tombstones ---------------------------------------------------------------------------


def test_a_tombstone_is_no_value_though_columns_are_not_nullable(typed: kmq.Store):
    with typed.producer() as producer:
        producer.send("t", {"id": 1}, "k")
        producer.send("t", None, "k").result(10)
    assert [(each.key, each.value) for each in records(typed, "t")] == [
        (b"k", NOTHING | {"id": 1}),
        (b"k", None),
    ]
    table = typed.read("t").read_all()
    assert table.column("id").to_pylist() == [1, None]
    assert table.schema.field("id").nullable  # nothing else would be true


def test_a_record_of_nulls_is_no_tombstone(store: kmq.Store):
    store.create_topic("t", schema=pa.schema([("a", pa.int8())]))
    with store.producer() as producer:
        producer.send("t", {}, "k")
        producer.send("t", None, "k").result(10)
    assert values(store, "t") == [{"a": None}, None]


def test_a_tombstone_without_a_key_is_refused(typed: kmq.Store):
    before = lsn(typed)
    with typed.producer() as producer, pytest.raises(kmq.InvalidRequestError, match="needs a key"):
        producer.send("t", None).result(10)
    assert lsn(typed) == before
