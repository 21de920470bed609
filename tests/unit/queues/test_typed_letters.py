"""Records of typed topics among dead letters: the same values, whatever their types are."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.queues.typed_letters import IS_ROW

SCHEMA = pa.schema(
    [
        ("id", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("ns", "UTC")),
        ("tags", pa.list_(pa.struct([("name", pa.dictionary(pa.int8(), pa.string()))]))),
        ("left", pa.float32()),
        ("none", pa.int64()),
    ]
)
ROW = {
    "id": b"\xff",
    "price": Decimal("1.50"),
    "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "tags": [{"name": "a"}, {"name": None}],
    "left": 0.5,
    "none": None,
}


@pytest.fixture
def queue(store: kmq.Store) -> kmq.Queue:
    store.create_topic("typed", schema=SCHEMA)
    store.create_queue("q", topics=["typed"])
    with store.producer() as producer:
        producer.send("typed", ROW, key="k").result()
        producer.send("typed", None, key="k").result()
    return store.queue("q")


def _values(records: list[kmq.Delivery]) -> list[Any]:
    return [each.value for each in records]


def test_a_typed_record_is_what_it_was_among_dead_letters_and_back(
    store: kmq.Store, queue: kmq.Queue
):
    held = queue.receive(2)
    before = _values(held)
    assert before[1] is None
    for reason in ("bad", "still bad"):  # the second time it is a letter already
        for each in held:
            each.reject(reason)
        letters = store.queue("q.dlq").receive(2)
        assert _values(letters) == before
        for each in letters:
            each.nack(0)
        assert queue.redrive() == 2
        held = queue.receive(2)
        assert _values(held) == before
    assert [each.properties["dead_letter_reason"] for each in held] == ["still bad"] * 2


def test_arrow_has_a_stream_of_the_row(store: kmq.Store, queue: kmq.Queue):
    for each in queue.receive(2):
        each.reject("later")
    table = store.queue("q.dlq").receive_arrow()
    assert table is not None
    first, second = table.to_pylist()
    assert pa.ipc.open_stream(first["value"]).read_all().to_pylist() == [ROW]
    assert IS_ROW in dict(first["properties"])
    assert second["value"] is None


def _stream(rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows, pa.schema([("b", pa.string())]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


def _beyond_its_bytes() -> bytes:
    """A stream whose row ends behind all of it: whoever believes that crashes."""
    before, _, behind = _stream([{"b": "x" * 50}]).rpartition(struct.pack("<ii", 0, 50))
    return before + struct.pack("<ii", 0, 2**31 - 1) + behind


def _in_a_zone_that_is_nowhere() -> bytes:
    kind = pa.timestamp("us", "Nowhere/Bad")
    table = pa.table({"at": pa.array([0], pa.timestamp("us")).cast(kind)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole


@pytest.mark.parametrize(
    "value",
    [
        b"x",
        b"",
        b"\xff\xff\xff\xff\x10\0\0\0" + b"a" * 16,
        _stream([]),
        _stream([{"b": "1"}, {"b": "2"}]),
        _beyond_its_bytes(),
        _in_a_zone_that_is_nowhere(),
        *(_stream([{"b": "x" * 50}])[:length] for length in range(7, 300, 7)),
    ],
)
def test_who_has_a_property_of_that_name_gets_the_bytes_that_were_sent(
    store: kmq.Store, value: bytes
):
    store.create_queue("plain", max_deliveries=1)
    with store.producer() as producer:
        producer.send_to_queue("plain", value, properties={IS_ROW: True}).result()
    (held,) = store.queue("plain").receive()
    assert held.value == value
    held.nack()
    assert _values(store.queue("plain.dlq").receive()) == [value]
