"""`Store.read`: bounds, columns, batches, laziness, and what it refuses.

Finds: rows outside the bounds, batches that cross partitions, columns of other types, and plans
that read more than they were asked for.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PROPERTY = pa.struct([
    ("int", pa.int64()), ("float", pa.float64()), ("text", pa.string()), ("bytes", pa.binary()),
    ("bool", pa.bool_()),
])  # fmt: skip
SCHEMA = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()),
    ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("properties", pa.map_(pa.string(), PROPERTY)),
])  # fmt: skip


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Twelve records in each of three partitions, a second apart, over several commits."""
    store.create_topic("t", partitions=3)
    with store.producer() as producer:
        for number in range(12):
            for partition in range(3):
                producer.send(
                    "t", b"%d" % number, b"k" if number % 2 else None, partition=partition,
                    timestamp=T0 + timedelta(seconds=number),
                    headers={"h": b"x"} if number == 3 else None,
                    properties={"p": number} if number == 4 else None,
                )  # fmt: skip
            if number % 4 == 0:
                producer.flush()
    return store


def rows(reader: pa.RecordBatchReader) -> dict[int, list[int]]:
    """The offsets by partition, in the order in which they came."""
    found: dict[int, list[int]] = {}
    for batch in reader:
        for partition, offset in zip(
            batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True
        ):
            found.setdefault(partition, []).append(offset)
    return found


def test_the_columns_have_the_contracted_types_in_the_contracted_order(shop: kmq.Store):
    reader = shop.read("t")
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == SCHEMA
    assert reader.read_all().schema == SCHEMA
    shop.create_topic("empty")
    assert shop.read("empty").read_all().schema == SCHEMA


def test_every_row_is_what_was_sent(shop: kmq.Store):
    table = shop.read("t", partitions=[1]).read_all().to_pylist()
    assert [row["value"] for row in table] == [b"%d" % number for number in range(12)]
    assert [row["key"] for row in table] == [None, b"k"] * 6
    assert {(row["topic"], row["partition"]) for row in table} == {("t", 1)}
    assert [row["timestamp"] for row in table] == [T0 + timedelta(seconds=n) for n in range(12)]
    assert table[3]["headers"] == [{"key": "h", "value": b"x"}]
    assert table[4]["properties"][0][1]["int"] == 4


def test_partitions_ascend_and_no_batch_crosses_two(shop: kmq.Store):
    seen = []
    for batch in shop.read("t", partitions=[2, 0, 1]):
        (partition,) = set(batch["partition"].to_pylist())
        seen.append(partition)
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2}


@pytest.mark.parametrize("batch_rows", [1, 5, 100])
def test_batches_have_at_most_the_rows_that_were_asked_for(shop: kmq.Store, batch_rows: int):
    batches = list(shop.read("t", batch_rows=batch_rows))
    assert max(batch.num_rows for batch in batches) <= batch_rows
    assert sum(batch.num_rows for batch in batches) == 36


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, {0: (0, 12), 1: (0, 12), 2: (0, 12)}),
        ({"start": {1: 5}}, {0: (0, 12), 1: (5, 12), 2: (0, 12)}),
        ({"start": {0: 12, 1: 11}, "partitions": [0, 1]}, {1: (11, 12)}),
        ({"end": {0: 3, 1: 0}}, {0: (0, 3), 2: (0, 12)}),
        ({"end": {0: 500}, "partitions": [0]}, {0: (0, 12)}),
        ({"end": {0: -1}, "partitions": [0]}, {}),
        ({"start": {0: 3}, "end": {0: 5}, "partitions": [0]}, {0: (3, 5)}),
        ({"start": {0: 5}, "end": {0: 3}, "partitions": [0]}, {}),
        ({"start": T0 + timedelta(seconds=7), "partitions": [0, 2]}, {0: (7, 12), 2: (7, 12)}),
        ({"start": T0 + timedelta(seconds=7, microseconds=1), "partitions": [0]}, {0: (8, 12)}),
        ({"end": T0 + timedelta(seconds=7), "partitions": [0]}, {0: (0, 7)}),
        ({"start": T0 - timedelta(days=9), "end": T0 + timedelta(days=9), "partitions": [0]},
         {0: (0, 12)}),
        ({"start": T0 + timedelta(days=9)}, {}),
        ({"start": {0: 4}, "end": T0 + timedelta(seconds=6), "partitions": [0]}, {0: (4, 6)}),
        ({"partitions": []}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_are_offsets_or_instants_and_are_clipped(
    shop: kmq.Store, bounds: dict[str, Any], expected: dict[int, tuple[int, int]]
):
    found = rows(shop.read("t", **bounds))
    assert found == {partition: list(range(*span)) for partition, span in expected.items()}


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ({"start": {0: 13}}, kmq.OffsetOutOfRangeError),
        ({"start": {0: -1}}, kmq.OffsetOutOfRangeError),
        ({"start": {3: 0}}, kmq.NotFoundError),
        ({"end": {3: 0}}, kmq.NotFoundError),
        ({"partitions": [3]}, kmq.NotFoundError),
        ({"partitions": [-1]}, kmq.NotFoundError),
    ],
    ids=str,
)
def test_bounds_that_cannot_be_are_refused_at_the_call(
    shop: kmq.Store, bounds: dict[str, Any], error: type[Exception]
):
    with pytest.raises(error):
        shop.read("t", **bounds)
    if "partitions" not in bounds:
        with pytest.raises(error):
            shop.find("t", **bounds)


@pytest.mark.parametrize("nothing", [5, "earliest", [0], b""])
def test_a_bound_that_is_neither_offsets_nor_an_instant_is_told_both(shop: kmq.Store, nothing: Any):
    for what, call in (
        ("start", lambda: shop.read("t", start=nothing)),
        ("end", lambda: shop.find("t", end=nothing)),
        ("before", lambda: shop.trim("t", nothing)),
    ):
        both = rf"^{what} must be {{partition: offset}} or a datetime with a time zone, not"
        with pytest.raises(kmq.InvalidRequestError, match=both):
            call()


def test_columns_are_chosen_and_ordered_by_the_caller(shop: kmq.Store):
    reader = shop.read("t", columns=["offset", "value"], partitions=[0])
    assert reader.schema.names == ["offset", "value"]
    assert reader.read_all().to_pylist()[2] == {"offset": 2, "value": b"2"}
    assert shop.read("t", columns=(name for name in ["key"])).schema.names == ["key"]
    for name in SCHEMA.names:
        only = shop.read("t", columns=[name], partitions=[1]).read_all()
        assert only.schema.field(0) == SCHEMA.field(name)
        assert only[name].equals(shop.read("t", partitions=[1]).read_all()[name])


def test_a_read_sees_what_was_there_at_the_call(shop: kmq.Store):
    reader = shop.read("t", partitions=[0])
    with shop.producer() as producer:
        producer.send("t", b"later", partition=0).result(10)
    assert rows(reader) == {0: list(range(12))}
    assert rows(shop.read("t", partitions=[0])) == {0: list(range(13))}


def test_a_read_goes_on_after_the_store_is_closed(store_url: str):
    with kmq.open(store_url) as store:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_batch("t", [b"v"] * 10).result(10)
        reader = store.read("t", batch_rows=5)
        first = reader.read_next_batch()
    assert first.num_rows == 5
    assert first["value"].to_pylist() == [b"v"] * 5
    assert reader.read_next_batch()["offset"].to_pylist() == list(range(5, 10))


def test_large_batches_come_from_files_beside_the_log_just_as_well(store: kmq.Store):
    store.create_topic("t", partitions=2)
    with store.producer() as producer:
        sent = [b"%06d" % number + b"x" * 50_000 for number in range(100)]
        producer.send_batch("t", sent, partition=1).result(10)
        producer.send("t", b"small", partition=1).result(10)
    found = store.read("t", start={1: 40}, columns=["value", "partition", "offset"]).read_all()
    assert found["value"].to_pylist() == [*sent[40:], b"small"]
    assert found["offset"].to_pylist() == list(range(40, 101))
