"""What is sent comes back: bytes, text, tombstones, headers, properties and instants, exactly.

Finds: a header that is lost or reordered, a property that changes its type, an instant that is
rounded, values that are refused after something was written.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import operator
import pickle
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.unit.client.stored import lsn, records, send_one

INDIA = timezone(timedelta(hours=5, minutes=30))

INSTANTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2262, 4, 12, tzinfo=UTC),
    datetime(2026, 2, 28, 12, 30, 15, 123_457, tzinfo=INDIA),
]

PROPERTIES = [
    0,
    1,
    -1,
    2**63 - 1,
    -(2**63),
    True,
    False,
    0.0,
    -0.0,
    1.0,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
    "",
    "text",
    "ünïcødé 🚀",
    "nul\0inside",
    b"",
    b"\x00\xff",
]


def _bits(value: Any) -> tuple[type, Any]:
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (b"", b""),
        (b"\x00\xff" * 10, b"\x00\xff" * 10),
        ("text", b"text"),
        ("ünïcødé 🚀", "ünïcødé 🚀".encode()),
        (bytearray(b"array"), b"array"),
        (memoryview(b"view"), b"view"),
        (None, None),
    ],
)
def test_values_and_keys_come_back_as_bytes(store: kmq.Store, sent: Any, stored: bytes | None):
    record = send_one(store, sent, sent)
    assert (record.value, record.key) == (stored, stored)


def test_a_bytearray_that_changes_after_the_send_is_stored_as_it_was(store: kmq.Store):
    store.create_topic("t")
    value = bytearray(b"before")
    with store.producer(linger=1.0) as producer:
        producer.send("t", value)
        value[:] = b"after!"
    assert [record.value for record in records(store, "t")] == [b"before"]


def test_a_tombstone_keeps_its_key_and_an_empty_value_is_no_tombstone(store: kmq.Store):
    assert send_one(store, None, b"k").value is None
    assert send_one(store, b"", b"k").value == b""


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("a", b"1")],
        [("b", b"2"), ("a", b"1"), ("b", b"3"), ("b", b"2")],
        [("none", None), ("empty", b""), ("none", None)],
        [("", b"an empty name"), ("ünï", "tëxt".encode())],
    ],
)
def test_headers_keep_order_repeats_and_none(store: kmq.Store, headers: list[Any]):
    assert send_one(store, b"v", headers=headers).headers == tuple(headers)


def test_headers_may_be_a_mapping_and_text(store: kmq.Store):
    record = send_one(store, b"v", headers={"a": "tëxt", "b": None, "c": b"raw"})
    assert record.headers == (("a", "tëxt".encode()), ("b", None), ("c", b"raw"))


def test_headers_may_be_a_generator(store: kmq.Store):
    record = send_one(store, b"v", headers=((name, b"x") for name in "ab"))
    assert record.headers == (("a", b"x"), ("b", b"x"))


def test_a_record_without_headers_and_properties_has_empty_ones(store: kmq.Store):
    record = send_one(store, b"v")
    assert record.headers == ()
    assert dict(record.properties) == {}


@pytest.mark.parametrize("value", PROPERTIES, ids=repr)
def test_a_property_keeps_its_type_and_every_bit(store: kmq.Store, value: Any):
    record = send_one(store, b"v", properties={"p": value})
    assert _bits(record.properties["p"]) == _bits(value)


def test_many_properties_stand_side_by_side(store: kmq.Store):
    sent = {f"ü{number}": value for number, value in enumerate(PROPERTIES)}
    record = send_one(store, b"v", properties=sent)
    assert {n: _bits(v) for n, v in record.properties.items()} == {
        n: _bits(v) for n, v in sent.items()
    }


def test_records_with_and_without_extras_are_not_mixed_up_in_one_batch(store: kmq.Store):
    store.create_topic("t")
    with store.producer(linger=1.0) as producer:
        for number in range(100):
            producer.send(
                "t",
                f"{number}",
                headers={"h": f"{number}"} if number % 3 == 0 else None,
                properties={"p": number} if number % 5 == 0 else None,
                timestamp=datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=number)
                if number % 7 == 0
                else None,
            )
    for number, record in enumerate(records(store, "t")):
        assert record.value == b"%d" % number
        assert record.headers == ((("h", b"%d" % number),) if number % 3 == 0 else ())
        assert record.properties == ({"p": number} if number % 5 == 0 else {})
        assert (record.timestamp < datetime(2001, 1, 1, tzinfo=UTC)) == (number % 7 == 0)


@pytest.mark.parametrize("when", INSTANTS, ids=str)
def test_an_instant_comes_back_to_the_microsecond_as_utc(store: kmq.Store, when: datetime):
    record = send_one(store, b"v", timestamp=when)
    assert record.timestamp == when
    assert record.timestamp.tzinfo is UTC


@pytest.mark.parametrize("when", INSTANTS, ids=str)
def test_the_metadata_of_a_send_tells_the_same_instant(store: kmq.Store, when: datetime):
    store.create_topic("t")
    with store.producer() as producer:
        sent = producer.send("t", b"v", timestamp=when).result(10)
    assert sent.timestamp == records(store, "t")[0].timestamp == when


def test_without_a_timestamp_it_is_the_time_of_the_send(store: kmq.Store):
    store.create_topic("t")
    before = datetime.now(UTC)
    with store.producer() as producer:
        sent = producer.send("t", b"v").result(10)
    assert before - timedelta(milliseconds=1) <= sent.timestamp <= datetime.now(UTC)
    assert records(store, "t")[0].timestamp == sent.timestamp


def test_a_uniq_may_be_bytes_and_text_is_its_utf8(store: kmq.Store):
    store.create_topic("t")
    with store.producer(linger=0) as producer:
        assert not producer.send("t", b"1", uniq="grün").result().duplicate
        assert producer.send("t", b"2", uniq="grün".encode()).result().duplicate
        assert not producer.send("t", b"3", uniq=b"\xff").result().duplicate
        assert producer.send("t", b"4", uniq=b"\xff").result().duplicate


def test_properties_of_numpy_are_stored_as_the_numbers_that_they_are(store: kmq.Store):
    store.create_topic("t")
    given = {"i": np.int64(-7), "u": np.uint8(7), "f": np.float32(0.1), "b": np.bool_(True)}
    with store.producer() as producer:
        producer.send("t", b"v", properties=given)
        with pytest.raises(kmq.InvalidRequestError, match="property a"):
            producer.send("t", b"v", properties={"a": np.uint64(2**63)})
    found = records(store, "t")[0].properties
    assert found == {"i": -7, "u": 7, "f": float(np.float32(0.1)), "b": True}
    assert [type(each) for each in found.values()] == [int, int, float, bool]
    assert store.find("t", properties=given).num_rows == 1


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"value": 1}, "value"),
        ({"value": 1.5}, "value"),
        ({"value": ["a"]}, "value"),
        ({"value": b"v", "key": 1}, "key"),
        ({"value": b"v", "key": ("a",)}, "key"),
        ({"value": b"v", "timestamp": datetime(2026, 1, 1)}, "timestamp"),  # noqa: DTZ001
        ({"value": b"v", "timestamp": 1_700_000_000}, "timestamp"),
        ({"value": b"v", "timestamp": 1.5}, "timestamp"),
        ({"value": b"v", "timestamp": "2026-01-01"}, "timestamp"),
        ({"value": b"v", "headers": 1}, "headers"),
        ({"value": b"v", "headers": "ab"}, "headers"),
        ({"value": b"v", "headers": [b"ab"]}, "headers"),
        ({"value": b"v", "headers": [{"key": "a", "value": b"b"}]}, "headers"),
        ({"value": b"v", "headers": [("a", b"b", b"c")]}, "headers"),
        ({"value": b"v", "headers": {1: b"x"}}, "header"),
        ({"value": b"v", "headers": {"a": 1}}, "header a"),
        ({"value": b"v", "properties": [("a", 1)]}, "properties"),
        ({"value": b"v", "properties": {"": 1}}, "property"),
        ({"value": b"v", "properties": {1: 1}}, "property"),
        ({"value": b"v", "properties": {"a": None}}, "property a"),
        ({"value": b"v", "properties": {"a": 2**63}}, "property a"),
        ({"value": b"v", "properties": {"a": -(2**63) - 1}}, "property a"),
        ({"value": b"v", "properties": {"a": [1]}}, "property a"),
        ({"value": b"v", "properties": {"a": np.timedelta64(1, "ns")}}, "property a"),
        ({"value": b"v", "properties": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}, "property a"),
        ({"value": b"v", "partition": -1}, "partition"),
        ({"value": b"v", "partition": "0"}, "partition"),
        ({"value": b"v", "partition": 1.0}, "partition"),
        ({"value": b"v", "partition": True}, "partition"),
        ({"value": b"v", "uniq": 5}, "uniq"),
        ({"value": "lone \ud800 surrogate"}, "value"),
        ({"value": b"v", "key": "lone \ud800 surrogate"}, "key"),
        ({"value": b"v", "headers": {"lone \ud800": b""}}, "header"),
        ({"value": b"v", "headers": {"a": "lone \ud800"}}, "header a"),
        ({"value": b"v", "properties": {"lone \ud800": 1}}, "property"),
        ({"value": b"v", "properties": {"a": "lone \ud800"}}, "property a"),
        ({"value": b"v", "on_delivery": "not callable"}, "on_delivery"),
    ],
    ids=repr,
)
def test_what_cannot_be_stored_is_refused_at_once_by_name(
    store: kmq.Store, options: dict[str, Any], names: str
):
    store.create_topic("t")
    with store.producer() as producer:
        before = lsn(store)
        with pytest.raises(kmq.InvalidRequestError, match=names):
            producer.send("t", **options)
        assert len(producer) == 0
    assert lsn(store) == before


def test_a_wrong_keyword_is_a_type_error(store: kmq.Store):
    with store.producer() as producer, pytest.raises(TypeError):
        producer.send("t", b"v", header={"a": b"b"})  # type: ignore[call-arg]


def test_a_record_is_frozen_equal_by_content_and_picklable(store: kmq.Store):
    record = send_one(store, b"v", b"k", headers={"a": b"1"}, properties={"p": 1})
    again = records(store, "t")[0]
    assert record is not again
    assert record == again
    assert hash(record) == hash(again)
    assert record != send_one(store, b"v", b"k")
    assert pickle.loads(pickle.dumps(record)) == record
    assert record.queue is None
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        record.value = b"other"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        record.note = "more"  # type: ignore[attr-defined]


def test_a_plain_record_can_be_pickled_and_copied_too(store: kmq.Store):
    record = send_one(store, b"v")
    for again in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
        assert again == record
        assert type(again) is kmq.Record
        assert again.properties == {}


def test_a_record_with_properties_can_be_copied_and_shows_what_it_is(store: kmq.Store):
    record = send_one(store, b"x" * 1000, b"key", properties={"p": 1})
    assert "topic='t'" in repr(record)
    assert len(repr(record)) < 300
    assert {record} == {records(store, "t")[0]}


@pytest.mark.parametrize(
    "headers", ["ab", b"cd", ["ab", "cd"], [("a", b"1", 2)], [("a",)], {1: b"1"}, [(None, b"1")], 7]
)
def test_headers_of_another_shape_are_refused_at_once(store: kmq.Store, headers: Any):
    store.create_topic("t")
    with store.producer() as producer:
        with pytest.raises(kmq.InvalidRequestError, match="header"):
            producer.send("t", b"v", headers=headers)
        with pytest.raises(kmq.InvalidRequestError, match="header"):
            producer.send_batch("t", [b"v"], headers=[headers])
    assert store.read("t").read_all().num_rows == 0


def test_columns_of_pandas_are_taken_by_position_whatever_their_index(store: kmq.Store):
    def column(*values: Any) -> Any:
        return pd.Series(values, index=[7, 0], dtype=object)

    store.create_topic("t")
    instants = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2)]
    with store.producer() as producer:
        producer.send_batch(
            "t",
            column(b"1", "2"),
            column(b"a", "b"),
            headers=column({"h": b"1"}, {"h": b"2"}),
            properties=column({"p": 1}, {"p": 2}),
            timestamps=column(*instants),
        ).result(10)
    with store.consumer(topics=["t"]) as consumer:
        first, second = consumer.consume()
    assert (first.value, first.key, first.headers) == (b"1", b"a", (("h", b"1"),))
    assert (second.value, second.key, second.headers) == (b"2", b"b", (("h", b"2"),))
    assert [dict(each.properties) for each in (first, second)] == [{"p": 1}, {"p": 2}]
    assert [first.timestamp, second.timestamp] == instants


@pytest.mark.parametrize("column", [pa.array, lambda values: pa.chunked_array([values])])
def test_columns_of_arrow_are_sequences_too(store: kmq.Store, column: Callable[..., Any]):
    store.create_topic("t")
    instants = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2)]
    with store.producer() as producer:
        values, keys = column([b"1", None]), column(["a", None])
        producer.send_batch("t", values, keys, timestamps=column(instants)).result(10)
    found = [(each.value, each.key, each.timestamp) for each in records(store, "t")]
    assert found == [(b"1", b"a", instants[0]), (None, None, instants[1])]


class _NoOffset(tzinfo):
    """A zone that doesn't know how far it is from UTC: Python calls its datetimes naive."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None


@pytest.mark.parametrize("when", [datetime(2026, 1, 1, tzinfo=_NoOffset()), pd.NaT])
def test_an_instant_whose_zone_has_no_offset_is_none(store: kmq.Store, when: datetime):
    store.create_topic("t")
    with store.producer() as producer, pytest.raises(kmq.InvalidRequestError, match="time zone"):
        producer.send("t", b"v", timestamp=when)
    with pytest.raises(kmq.InvalidRequestError, match="time zone"):
        store.offsets_for_time("t", when)


@pytest.mark.parametrize("others", [None, {"n": 1}])
def test_no_properties_are_a_dict_as_others_are(store: kmq.Store, others: dict[str, int] | None):
    store.create_topic("t")
    with store.producer() as producer:  # the second shares the first one's commit
        producer.send_batch("t", [b"none", b"other"], properties=[None, others])
    with store.consumer(topics=["t"]) as consumer:
        none, other = consumer.consume(2)
    assert (none.properties, other.properties) == ({}, others or {})
    for record in (none, other):
        copies = copy.deepcopy(record.properties), pickle.loads(pickle.dumps(record.properties))
        assert [json.dumps(each) for each in (record.properties, *copies)] == [
            json.dumps(dict(record.properties))
        ] * 3
        copies[0]["more"] = 2


def test_what_all_records_without_properties_share_stays_empty(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"1", b"2"])
    with store.consumer(topics=["t"]) as consumer:
        one, other = consumer.consume(2)
    for change in (
        lambda shared: shared.update(n=1),
        lambda shared: shared.setdefault("n", 1),
        lambda shared: operator.setitem(shared, "n", 1),
        lambda shared: operator.ior(shared, {"n": 1}),
    ):
        with pytest.raises(TypeError, match="doesn't change"):
            change(one.properties)
    assert one.properties == other.properties == {}
