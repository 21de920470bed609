"""send_batch and send_arrow: what they take, and that they are stored whole or not at all.

Finds: half a batch, metadata that points at other rows, columns that are taken for others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.encoding.rows import in_stored_types
from kmq_spark.client.sending import topic_arrow
from tests.unit.client.stored import lsn, records, values

WHEN = datetime(2026, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)


@pytest.fixture
def producer(store: kmq.Store) -> Any:
    """A producer of a store with topic `t` of three partitions."""
    store.create_topic("t", partitions=3)
    with store.producer() as opened:
        yield opened


def test_a_batch_gives_one_metadata_per_value_at_its_place(
    store: kmq.Store, producer: kmq.Producer
):
    sent = [b"%d" % number for number in range(100)]
    places = producer.send_batch("t", sent, sent).result(10)
    by_place = {(record.partition, record.offset): record.value for record in records(store, "t")}
    assert [by_place[place.partition, place.offset] for place in places] == sent


def test_a_batch_takes_every_part_of_a_record_row_by_row(store: kmq.Store, producer: kmq.Producer):
    producer.send_batch(
        "t",
        ["a", None, b"c"],
        [b"k", "k2", None],
        partition=1,
        headers=[{"h": b"1"}, None, [("x", None)]],
        properties=[None, {"p": -0.0}, {"q": True}],
        timestamps=[WHEN, None, WHEN],
    ).result(10)
    first, second, third = records(store, "t")
    assert (first.value, first.key, first.headers) == (b"a", b"k", (("h", b"1"),))
    assert (second.value, second.key, dict(second.properties)) == (None, b"k2", {"p": -0.0})
    assert (third.value, third.headers, third.timestamp) == (b"c", (("x", None),), WHEN)
    assert second.timestamp > WHEN or second.timestamp.year >= 2025


@pytest.mark.parametrize(
    "options",
    [
        {"values": [b"a", 1]},
        {"values": [b"a"], "keys": [b"a", b"b"]},
        {"values": [b"a"], "keys": [1]},
        {"values": [b"a"], "headers": []},
        {"values": [b"a"], "headers": [{"a": 1}]},
        {"values": [b"a"], "properties": [{"": 1}]},
        {"values": [b"a"], "timestamps": [datetime(2026, 1, 1)]},  # noqa: DTZ001
        {"values": [b"a"], "timestamps": [1]},
        {"values": [b"a"], "partition": -1},
        {"values": b"bytes are a sequence of numbers"},
        {"values": "text is no sequence of records"},
        {"values": [b"a", b"b"], "keys": b"kk"},
        {"values": [b"a", b"b"], "keys": "kk"},
        {"values": None},
        {"values": 5},
        pytest.param({"values": (b"a" for _ in range(2))}, id="a generator"),
        {"values": pd.DataFrame({"value": [b"a"]})},
        {"values": [b"a"], "keys": pd.DataFrame({"key": [b"a"]})},
    ],
    ids=repr,
)
def test_a_wrong_batch_is_refused_at_once(
    store: kmq.Store, producer: kmq.Producer, options: dict[str, Any]
):
    before = lsn(store)
    with pytest.raises(kmq.InvalidRequestError):
        producer.send_batch("t", **options)
    assert len(producer) == 0
    assert lsn(store) == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic": "missing", "values": [b"a"]}, kmq.NotFoundError),
        ({"topic": "t", "values": [b"a", b"b"], "partition": 3}, kmq.InvalidRequestError),
        ({"topic": "t", "values": [b"a", b"x" * 2_000_000]}, kmq.InvalidRequestError),
        ({"topic": "full", "values": [b"a"] * 11}, kmq.QueueFullError),
    ],
)
def test_a_batch_that_cannot_be_stored_whole_is_not_stored(
    store: kmq.Store, producer: kmq.Producer, options: dict[str, Any], error: type[Exception]
):
    store.create_topic("full", capacity=10)
    before = lsn(store)
    batch = producer.send_batch(**options)
    data = pa.table({"value": options["values"]})
    arrow = producer.send_arrow(options["topic"], data, partition=options.get("partition"))
    assert isinstance(batch.exception(10), error)
    assert isinstance(arrow.exception(10), error)
    assert lsn(store) == before


def test_a_refused_batch_leaves_its_neighbours(store: kmq.Store):
    store.create_topic("t", max_record_bytes=10)
    with store.producer(linger=1.0) as producer:
        first = producer.send_batch("t", [b"1", b"2"])
        bad = producer.send_batch("t", [b"3", b"x" * 11])
        single = producer.send("t", b"4")
        bad_arrow = producer.send_arrow("t", pa.table({"value": [b"5", b"x" * 11]}))
        last = producer.send_batch("t", [b"6"])
        assert [place.offset for place in first.result(10)] == [0, 1]
        assert (single.result().offset, last.result()[0].offset) == (2, 3)
    assert isinstance(bad.exception(), kmq.InvalidRequestError)
    assert isinstance(bad_arrow.exception(), kmq.InvalidRequestError)
    assert values(store, "t") == [b"1", b"2", b"4", b"6"]


def test_an_empty_batch_is_done_and_writes_nothing(store: kmq.Store, producer: kmq.Producer):
    before = lsn(store)
    assert producer.send_batch("t", []).result(10) == []
    empty = producer.send_arrow("t", pa.table({"value": pa.array([], pa.binary())})).result(10)
    assert (empty.topic, empty.rows, dict(empty.offsets)) == ("t", 0, {})
    assert lsn(store) == before


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DATA = {
    "value": pa.array([b"a", None, b"c"], pa.binary()),
    "key": pa.array(["k", None, "k3"], pa.string()),
    "partition": pa.array([2, 0, 2], pa.int64()),
    "timestamp": pa.array([WHEN, WHEN, None], pa.timestamp("us", "Europe/Paris")),
    "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], HEADERS),
}


@pytest.mark.parametrize("kind", ["batch", "table", "chunked table", "reader", "sliced"])
def test_arrow_data_comes_in_every_form(store: kmq.Store, producer: kmq.Producer, kind: str):
    table = pa.table(DATA)
    batch = table.to_batches()[0]
    data: Any = {
        "batch": batch,
        "table": table,
        "chunked table": pa.concat_tables([table.slice(0, 1), table.slice(1, 2)]),
        "reader": pa.RecordBatchReader.from_batches(batch.schema, [batch]),
        "sliced": pa.concat_tables([table, table, table]).combine_chunks().slice(3, 3),
    }[kind]
    sent = producer.send_arrow("t", data).result(10)
    assert (sent.topic, sent.rows, dict(sent.offsets)) == ("t", 3, {0: (0, 1), 2: (0, 2)})
    tombstone, first, third = records(store, "t")
    assert (tombstone.value, tombstone.key, tombstone.timestamp) == (None, None, WHEN)
    assert (first.value, first.key, first.headers) == (b"a", b"k", (("h", b"1"),))
    assert (third.value, third.key, third.headers) == (b"c", b"k3", ())
    assert third.timestamp > WHEN or third.timestamp.year >= 2025


def test_what_read_gives_can_be_sent_again(store: kmq.Store, producer: kmq.Producer):
    store.create_topic("copy", partitions=3)
    producer.send_batch(
        "t",
        [b"a", None, b"c"],
        [b"1", b"2", None],
        headers=[{"h": None}, None, {"x": b"y"}],
        properties=[{"i": 2**63 - 1, "f": -0.0}, {"b": False}, None],
        timestamps=[WHEN] * 3,
    ).result(10)
    everything = store.read("t").read_all()
    producer.send_arrow("copy", everything.drop_columns(["topic", "offset"])).result(10)
    assert store.read("copy").read_all().drop_columns("topic") == everything.drop_columns("topic")


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(2),
    ],
)
def test_any_arrow_text_or_binary_will_do(
    store: kmq.Store, producer: kmq.Producer, kind: pa.DataType
):
    column = pa.array([b"ab", b"cd"], pa.binary()).cast(pa.string()).cast(pa.binary()).cast(kind)
    producer.send_arrow("t", pa.table({"value": column, "key": column}), partition=0).result(10)
    assert [(each.value, each.key) for each in records(store, "t")] == [(b"ab",) * 2, (b"cd",) * 2]


def test_dictionary_encoded_values_will_do(store: kmq.Store, producer: kmq.Producer):
    column = pa.array([b"ab", b"cd", b"ab"], pa.binary()).dictionary_encode()
    producer.send_arrow("t", pa.table({"value": column}), partition=0).result(10)
    assert values(store, "t") == [b"ab", b"cd", b"ab"]


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"value": [b"a"]}, "dict"),
        (None, "NoneType"),
        ([b"a"], "list"),
        (pa.table({"key": [b"a"]}), "value"),
        (pa.table({"value": [b"a"], "keys": [b"a"]}), "'keys' is unknown.*'key'"),
        (pa.table({"value": [b"a"], "offset": [1]}), "offset"),
        (pa.table({"value": [1]}), "value"),
        (pa.table({"value": [b"a"], "key": [1.5]}), "key"),
        (pa.table({"value": [b"a"], "partition": ["x"]}), "partition"),
        (pa.table({"value": [b"a"], "partition": [-1]}), "partition"),
        (pa.table({"value": [b"a"], "partition": [2**40]}), "partition"),
        (pa.table({"value": [b"a"], "partition": [0.0]}), "partition"),
        (pa.table({"value": [b"a"], "timestamp": [1]}), "timestamp"),
        (pa.table({"value": [b"a"], "timestamp": pa.array([1], pa.timestamp("us"))}), "time zone"),
        (
            pa.table({"value": [b"a"], "timestamp": pa.array([1], pa.timestamp("ns", "UTC"))}),
            "timestamp",
        ),
        (pa.table({"value": [b"a"], "headers": ["x"]}), "headers"),
        (pa.table({"value": [b"a"], "properties": [1]}), "properties"),
        (pa.Table.from_arrays([pa.array([b"a"])] * 2, names=["value", "value"]), "twice"),
    ],
)
def test_wrong_arrow_data_is_refused_at_once(
    store: kmq.Store, producer: kmq.Producer, data: Any, names: str
):
    before = lsn(store)
    with pytest.raises(kmq.InvalidRequestError, match=names):
        producer.send_arrow("t", data)
    assert lsn(store) == before


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("value", pa.int64()),
        ("key", pa.float64()),
        ("partition", pa.string()),
        ("timestamp", pa.timestamp("us")),
        ("headers", pa.string()),
        ("properties", pa.int64()),
        ("key", pa.dense_union([pa.field("a", pa.int8())])),
    ],
)
def test_columns_of_wrong_types_are_refused_without_rows_too(
    producer: kmq.Producer, column: str, kind: pa.DataType
):
    columns = {"value": pa.binary()} | {column: kind}
    for data in _without_rows(pa.schema(columns)):
        with pytest.raises(kmq.InvalidRequestError, match=f"'{column}' of type") as refused:
            producer.send_arrow("t", data)
        assert refused.value.context["column"] == column


def test_columns_of_other_types_that_are_taken_are_so_without_rows(producer: kmq.Producer):
    columns = {"value": pa.large_string(), "key": pa.null(), "partition": pa.uint8()}
    for data in _without_rows(pa.schema(columns)):
        assert producer.send_arrow("t", data).result(10).rows == 0


def _without_rows(schema: pa.Schema) -> list[Any]:
    return [
        pa.Table.from_batches([], schema=schema),
        pa.RecordBatchReader.from_batches(schema, []),
    ]


PROPERTY = pa.struct(
    [
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("bool", pa.bool_()),
    ]
)


@pytest.mark.parametrize(
    "properties",
    [
        [("", {"int": 1})],
        [("a", {})],
        [("a", {"int": 1, "text": "both"})],
        [("a", None)],
        [("a", {"int": 1}), ("a", {"int": 2})],
    ],
    ids=repr,
)
def test_arrow_properties_follow_the_same_rules_as_others(
    store: kmq.Store, producer: kmq.Producer, properties: Any
):
    column = pa.array([properties], pa.map_(pa.string(), PROPERTY))
    before = lsn(store)
    with pytest.raises(kmq.InvalidRequestError, match="propert"):
        producer.send_arrow("t", pa.table({"value": [b"v"], "properties": column})).result(10)
    assert lsn(store) == before


def test_arrow_headers_without_a_name_are_refused(store: kmq.Store, producer: kmq.Producer):
    column = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    before = lsn(store)
    with pytest.raises(kmq.InvalidRequestError, match="header"):
        producer.send_arrow("t", pa.table({"value": [b"v"], "headers": column})).result(10)
    assert lsn(store) == before


def test_a_reader_is_read_during_the_call(producer: kmq.Producer):
    pulled = []

    def batches() -> Any:
        for number in range(3):
            pulled.append(number)
            yield pa.record_batch({"value": pa.array([b"%d" % number], pa.binary())})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches())
    future = producer.send_arrow("t", reader, partition=0)
    assert pulled == [0, 1, 2]
    assert future.result(10).offsets == {0: (0, 3)}


def test_a_reader_that_fails_sends_nothing(store: kmq.Store, producer: kmq.Producer):
    def batches() -> Any:
        yield pa.record_batch({"value": pa.array([b"1"], pa.binary())})
        raise RuntimeError("source failed")

    before = lsn(store)
    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches())
    with pytest.raises(RuntimeError, match="source failed"):
        producer.send_arrow("t", reader)
    assert lsn(store) == before


def test_arrow_data_is_checked_once_by_the_call(store: kmq.Store, monkeypatch: pytest.MonkeyPatch):
    checked: list[int] = []

    def counting(batch: pa.RecordBatch) -> pa.RecordBatch:
        checked.append(batch.num_rows)
        return in_stored_types(batch)

    monkeypatch.setattr(topic_arrow, "in_stored_types", counting)
    store.create_topic("t")
    with store.producer() as producer:
        sent = producer.send_arrow("t", pa.table({"value": ["text"] * 3}))
        assert sent.result(10).rows == 3
    assert checked == [3]
    assert [record.value for record in records(store, "t")] == [b"text"] * 3
