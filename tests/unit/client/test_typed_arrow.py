"""Typed topics and Arrow: which data they take, what reads give, and the limits of every topic."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.unit.client.stored import lsn, records, values
from tests.unit.client.typed import ADDED, NOTHING, SCHEMA


def _send(store: kmq.Store, *arguments: Any, **options: Any) -> kmq.RecordMetadata:
    with store.producer() as producer:
        return producer.send("t", *arguments, **options).result(10)


def _send_arrow(store: kmq.Store, data: Any, **options: Any) -> kmq.BatchMetadata:
    with store.producer() as producer:
        return producer.send_arrow("t", data, **options).result(10)


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.dictionary(pa.int8(), pa.string()))]
)
def test_a_table_whose_dictionaries_are_no_common_one_is_sent_as_it_was_read(
    store: kmq.Store, kind: pa.DataType
):
    store.create_topic("d", schema=pa.schema([("c", kind)]))
    with store.producer() as producer:
        for first in range(3):
            words = pa.array([f"{first}-{n}" for n in range(100)]).dictionary_encode()
            column = words.cast(pa.dictionary(pa.int8(), pa.string()))
            if pa.types.is_list(kind):
                column = pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), column)
            producer.send_arrow("d", pa.table({"c": column})).result()
        table = store.read("d", columns=["c"]).read_all()
        sent = producer.send_arrow("d", table).result()
    assert sent.offsets == {0: (300, 600)}
    again = store.read("d", start={0: 300}, columns=["c"]).read_all()
    assert again.to_pylist() == table.to_pylist()


def test_a_read_has_own_columns_first_in_declared_types(typed: kmq.Store):
    _send_arrow(typed, pa.table({"id": [1]}))
    schema = typed.read("t").schema
    assert schema.names == [*SCHEMA.names, *ADDED]
    assert pa.schema([schema.field(name) for name in SCHEMA.names]) == SCHEMA
    assert typed.read("t", columns=["_offset", "kind"]).schema.names == ["_offset", "kind"]
    with pytest.raises(kmq.InvalidRequestError, match="'offset' is unknown"):
        typed.read("t", columns=["offset"])


@pytest.mark.parametrize(
    ("columns", "column", "reason"),
    [
        ({"name": ["x"]}, "id", "is missing, but not nullable"),
        ({"id": [1], "value": [b"x"]}, "value", "is unknown"),
        ({"id": [1], "_offset": [1]}, "_offset", "is unknown"),
        ({"id": ["1"]}, "id", "of type string is not int32"),
        ({"id": [1.0]}, "id", "of type double is not int32: cast it first"),
        ({"id": [1], "__index_level_0__": [1]}, "__index_level_0__", r"reset_index\(drop=True\)"),
        ({"id": [2**31]}, "id", "not in range"),
        ({"id": pa.array([1, None])}, "id", "holds a null, but 'id' is not nullable"),
        ({"id": [1], "at": pa.array([0], pa.timestamp("us"))}, "at", "is not timestamp"),
        ({"id": [1], "at": pa.array([1], pa.timestamp("us", "UTC"))}, "at", "would lose data"),
        ({"id": [1], "half": pa.array([1.0])}, "half", "of type double is not halffloat"),
        ({"id": [1], "tags": pa.array([["a", None]])}, "tags", "'tags.item' is not nullable"),
        ({"id": [1], "place": pa.array([{"x": None, "y": 1}])}, "place", "non-nullable field 'x'"),
        ({"id": [1], "place": pa.array([{"z": 1}])}, "place", "is not struct"),
        ({"id": [1], "pair": pa.array([[1]])}, "pair", "is not fixed_size_list"),
        ({"id": [1], "_key": [5]}, "_key", "is not binary"),
        ({"id": [1], "_partition": [-1]}, "_partition", "negative"),
        ({"id": [1], "_timestamp": pa.array([0], pa.timestamp("us"))}, "_timestamp", "time zone"),
    ],
)
def test_wrong_arrow_data_is_refused_at_once_by_its_column(
    typed: kmq.Store, columns: dict[str, Any], column: str, reason: str
):
    before = lsn(typed)
    with (
        typed.producer() as producer,
        pytest.raises(kmq.InvalidRequestError, match=reason) as refused,
    ):
        producer.send_arrow("t", pa.table(columns))
    assert refused.value.context["column"] == column
    assert lsn(typed) == before


def test_arrow_data_brings_keys_partitions_times_headers_and_properties(typed: kmq.Store):
    when = datetime(2020, 1, 1, tzinfo=UTC)
    with typed.producer() as producer:
        producer.send("t", {"id": 1}, "k", headers={"h": b"v"}, properties={"p": 1}, timestamp=when)
    wanted = ["id", "_timestamp", "_key", "_headers", "_properties"]
    table = typed.read("t", columns=wanted).read_all()
    sent = _send_arrow(typed, table.append_column("_partition", pa.array([1])))
    assert sent.offsets == {1: (sent.offsets[1][0], sent.offsets[1][0] + 1)}
    copy = records(typed, "t")[-1]
    assert (copy.value["id"], copy.timestamp, copy.key) == (1, when, b"k")
    assert (copy.headers, copy.properties) == ((("h", b"v"),), {"p": 1})


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.int64()),
        pa.array([1, 2], pa.uint8()),
        pa.array([1, 2], pa.int64()).dictionary_encode(),
    ],
)
def test_numbers_of_other_widths_are_taken_when_all_fit(typed: kmq.Store, column: pa.Array):
    _send_arrow(typed, pa.table({"id": column}))
    assert typed.read("t", columns=["id"]).read_all().column(0).to_pylist() == [1, 2]


def test_a_reader_and_empty_batches_are_taken(typed: kmq.Store):
    table = pa.table({"id": pa.array([1, 2, 3], pa.int32())})
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))
    assert _send_arrow(typed, reader).rows == 3
    assert _send_arrow(typed, table.slice(0, 0)).rows == 0
    assert _send_arrow(typed, SCHEMA.empty_table()).rows == 0
    with pytest.raises(kmq.InvalidRequestError, match="'_key' of type int64 is not binary"):
        _send_arrow(typed, pa.schema([("id", pa.int32()), ("_key", pa.int64())]).empty_table())
    assert typed.describe_topic("t").rows == 3


def test_a_column_may_have_the_name_of_one_of_kmq(store: kmq.Store):
    names = ["key", "value", "timestamp", "offset", "topic", "headers", "properties", "partition"]
    store.create_topic("t", schema=pa.schema([(name, pa.int8()) for name in names]))
    value = {name: number for number, name in enumerate(names)}
    _send(store, value, "a key")
    assert values(store, "t") == [value]
    assert store.read("t").schema.names == [*names, *ADDED]
    assert store.read("t").read_all().column("_key").to_pylist() == [b"a key"]


def test_a_dictionary_with_more_values_than_its_index_has_room_for_is_cut(store: kmq.Store):
    store.create_topic("t", schema=pa.schema([("kind", pa.dictionary(pa.int8(), pa.string()))]))
    texts = [f"v{n}" for n in range(1000)]
    with store.producer() as producer:
        for text in texts:
            producer.send("t", {"kind": text})
    table = store.read("t", columns=["kind"]).read_all()
    assert table.column("kind").type == pa.dictionary(pa.int8(), pa.string())
    assert table.column("kind").to_pylist() == texts
    table.validate(full=True)


_WORD = pa.dictionary(pa.int8(), pa.string())
_WORDS = pa.schema(
    [("words", pa.list_(_WORD)), ("by", pa.map_(pa.string(), pa.struct([("w", _WORD)])))]
)


def test_dictionaries_inside_other_types_are_cut_as_well(store: kmq.Store):
    store.create_topic("t", schema=_WORDS)
    rows = [{"words": [f"v{n}", None], "by": [("k", {"w": f"w{n}"})]} for n in range(300)]
    with store.producer() as producer:
        for row in rows:
            producer.send("t", row)
    assert values(store, "t") == rows
    table = store.read("t", columns=_WORDS.names).read_all()
    assert table.schema == _WORDS
    assert table.to_pylist() == rows
    table.validate(full=True)


def test_a_record_that_no_narrow_dictionary_can_hold_is_refused_by_its_column(store: kmq.Store):
    store.create_topic("t", schema=_WORDS)
    before = lsn(store)
    many = {"words": [f"v{n}" for n in range(200)]}
    with store.producer() as producer:
        for send in (
            lambda: producer.send("t", many),
            lambda: producer.send_arrow("t", pa.table({"words": [["a"], many["words"]]})),
        ):
            with pytest.raises(kmq.InvalidRequestError, match="more different values") as refused:
                send()
            assert refused.value.context["column"] == "words"
    assert lsn(store) == before


def test_a_dictionary_whose_indices_lead_nowhere_is_refused_by_its_column(typed: kmq.Store):
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 5]), pa.array([1]), safe=False)
    before = lsn(typed)
    with (
        typed.producer() as producer,
        pytest.raises(kmq.InvalidRequestError, match="no valid Arrow data") as refused,
    ):
        producer.send_arrow("t", pa.table({"id": wrong}))
    assert refused.value.context["column"] == "id"
    assert lsn(typed) == before


@pytest.mark.parametrize("length", [1, 3])
def test_what_stands_beneath_a_null_list_is_not_looked_at(store: kmq.Store, length: int):
    words = pa.array([None, ["a"] * length, None], pa.list_(_WORD, length))
    store.create_topic("t", schema=pa.schema([("words", words.type)]))
    rows = words.to_pylist()
    for some in (words[:1], words[1:]):  # the first has indices, and a dictionary without values
        _send_arrow(store, pa.table({"words": some}))
    assert store.read("t").read_all()["words"].to_pylist() == rows


@pytest.mark.parametrize("send", [True, False])
def test_a_record_counts_the_bytes_of_all_its_columns(store: kmq.Store, send: bool):
    schema = pa.schema([("n", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int16()))])
    store.create_topic("t", schema=schema, max_record_bytes=20)
    fits = {"n": 1, "s": "12345678", "l": [1, 2]}  # 4 + 8 + 4, and 4 of the key
    too_large = fits | {"s": "123456789"}

    def sent(value: dict[str, Any]) -> object:
        if send:
            return _send(store, value, "1234")
        return _send_arrow(store, pa.Table.from_pylist([value | {"_key": "1234"}]))

    sent(fits)
    with pytest.raises(kmq.InvalidRequestError, match="record of 21 bytes is too large"):
        sent(too_large)
    assert (store.describe_topic("t").rows, store.describe_topic("t").bytes) == (1, 20)


def test_keys_decide_the_partition_as_in_untyped_topics(store: kmq.Store):
    store.create_topic("t", schema=pa.schema([("n", pa.int32())]), partitions=7)
    store.create_topic("plain", partitions=7)
    with store.producer() as producer:
        for key in map(str, range(50)):
            typed, plain = producer.send("t", {"n": 1}, key), producer.send("plain", b"", key)
            assert typed.result(10).partition == plain.result(10).partition
        table = pa.table({"n": [1] * 50, "_key": list(map(str, range(50)))})
        arrow = producer.send_arrow("t", table).result(10)
    assert sum(end - first for first, end in arrow.offsets.values()) == 50


def test_a_full_topic_refuses_typed_records_too(store: kmq.Store):
    store.create_topic("t", schema=pa.schema([("n", pa.int32())]), capacity=2)
    with store.producer(linger=0.2) as producer:
        futures = [producer.send("t", {"n": n}) for n in range(3)]
        assert [type(future.exception(10)) for future in futures] == [
            type(None),
            type(None),
            kmq.QueueFullError,
        ]
        with pytest.raises(kmq.QueueFullError):
            producer.send_arrow("t", pa.table({"n": [1]})).result(10)


def test_large_batches_are_staged_and_come_back(typed: kmq.Store):
    table = pa.table({"id": pa.array(range(3000), pa.int32()), "name": ["x" * 1000] * 3000})
    _send_arrow(typed, table, partition=0)
    assert (
        typed.read("t", columns=["id", "name"])
        .read_all()
        .equals(table.cast(pa.schema([SCHEMA.field("id"), SCHEMA.field("name")])))
    )


def test_what_python_cannot_hold_comes_as_a_number_and_blocks_nobody(store: kmq.Store):
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("days", pa.list_(pa.date32())), ("t", pa.time64("ns"))]
    )
    store.create_topic("t", schema=schema)
    table = pa.Table.from_arrays(
        [
            pa.array([2**60, 0], schema[0].type),
            pa.array([[2**30], [0]], schema[1].type),
            pa.array([1001, 1000], schema[2].type),
        ],
        schema=schema,
    )
    _send_arrow(store, table)
    assert values(store, "t") == [
        {"at": 2**60, "days": [2**30], "t": 1001},
        {"at": datetime(1970, 1, 1, tzinfo=UTC), "days": [date(1970, 1, 1)], "t": time(0, 0, 0, 1)},
    ]
    assert store.read("t").read_all().select(schema.names).equals(table)


def test_floats_keep_every_bit(store: kmq.Store):
    store.create_topic("t", schema=pa.schema([("x", pa.float64())]))
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]
    with store.producer() as producer:
        for x in (odd, -0.0, float("inf"), 5e-324):
            producer.send("t", {"x": x})
    found = store.read("t").read_all().column("x").to_numpy()
    expected = np.array([odd, -0.0, float("inf"), 5e-324])
    assert found.view(np.uint64).tolist() == expected.view(np.uint64).tolist()


def test_a_typed_record_is_a_value_like_others(typed: kmq.Store):
    _send(typed, {"id": 1}, "k")
    first, again = records(typed, "t"), records(typed, "t")
    assert first == again
    assert len({*first, *again}) == 1
    assert "'id': 1" in repr(first[0])


def test_consume_arrow_gives_typed_columns(typed: kmq.Store):
    _send_arrow(typed, pa.table({"id": [1, 2, 3]}))
    with typed.consumer(topics=["t"]) as consumer:
        table = consumer.consume_arrow(timeout=0)
    assert table is not None
    assert table.schema == typed.read("t").schema
    assert sorted(table.column("id").to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("other", [None, pa.schema([("id", pa.int64())])])
def test_consume_arrow_over_different_schemas_is_refused_and_skips_nothing(
    typed: kmq.Store, other: pa.Schema | None
):
    typed.create_topic("other", schema=other)
    typed.create_topic("same", schema=SCHEMA)
    with typed.producer() as producer:
        for topic in ("t", "same"):
            producer.send(topic, {"id": 1}).result(10)
    with typed.consumer(topics=["t", "other"]) as consumer:
        with pytest.raises(kmq.InvalidRequestError, match="topics t and other have different"):
            consumer.consume_arrow(timeout=0)
        assert len(consumer.consume(timeout=0)) == 1
    with typed.consumer(topics=["t", "same"]) as consumer:
        table = consumer.consume_arrow(timeout=0)
        assert table is not None
        assert sorted(table.column("_topic").to_pylist()) == ["same", "t"]


def test_offsets_for_time_and_time_bounds_work_in_typed_topics(typed: kmq.Store):
    times = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    with typed.producer() as producer:
        for number, when in enumerate(times):
            producer.send("t", {"id": number}, partition=0, timestamp=when)
    assert typed.offsets_for_time("t", times[1]) == {0: 1, 1: None}
    found = typed.read("t", partitions=[0], start=times[1], columns=["id"]).read_all()
    assert found.column(0).to_pylist() == [1, 2]


CALLS: dict[str, Callable[[kmq.Producer], Any]] = {
    "send": lambda producer: producer.send("t", {"id": 5}),
    "send_batch": lambda producer: producer.send_batch("t", [{"id": 5}, None], [None, "k"]),
    "send_arrow": lambda producer: producer.send_arrow("t", pa.table({"id": [5]})),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_producer_that_never_heard_of_the_topic_sends_to_it(store: kmq.Store, call: str):
    with store.producer() as producer:
        with kmq.open(store.url) as other:
            other.create_topic("t", schema=SCHEMA)
        CALLS[call](producer).result(10)
    assert values(store, "t")[0] == NOTHING | {"id": 5}


_NO_TEXT = pa.array([b"\xff"], pa.binary()).view(pa.string())


def test_text_that_is_no_utf_8_is_refused_with_its_column(store: kmq.Store):
    store.create_topic("typed", schema=pa.schema([("name", pa.string())]))
    store.create_topic("plain")
    header = pa.StructArray.from_arrays([_NO_TEXT, pa.array([b"v"])], ["key", "value"])
    headers = pa.ListArray.from_arrays([0, 1], header)
    before = lsn(store)
    with store.producer() as producer:
        for topic, column, data in (
            ("typed", "name", pa.table({"name": _NO_TEXT})),
            ("plain", "headers", pa.table({"value": [b"v"], "headers": headers})),
        ):
            with pytest.raises(kmq.InvalidRequestError, match=f"'{column}'.*UTF8"):
                producer.send_arrow(topic, data).result(10)
    assert lsn(store) == before


@pytest.mark.parametrize("instant", [2**62, 253_402_300_800_000_000, -62_135_596_800_000_001])
def test_instants_that_no_record_can_show_are_refused(store: kmq.Store, instant: int):
    store.create_topic("typed", schema=pa.schema([("n", pa.int64())]))
    store.create_topic("plain")
    times = pa.array([instant], pa.timestamp("us", "UTC"))
    with store.producer() as producer:
        for topic, data in (
            ("typed", pa.table({"n": [1], "_timestamp": times})),
            ("plain", pa.table({"value": [b"v"], "timestamp": times})),
        ):
            with pytest.raises(kmq.InvalidRequestError, match="years 1 to 9999"):
                producer.send_arrow(topic, data).result(10)


def test_a_dataframe_is_refused_with_what_makes_arrow_of_it(typed: kmq.Store):
    with (
        typed.producer() as producer,
        pytest.raises(kmq.InvalidRequestError, match=r"DataFrame: pyarrow.table\(data\) makes one"),
    ):
        producer.send_arrow("t", pd.DataFrame({"id": [1]}))  # type: ignore[arg-type]
