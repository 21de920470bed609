"""A few plain rows take a short way to the log; what is stored is the same as the long way's.

Finds a message that differs by a byte from Arrow's own, and a record, partition or offset that
depends on how many records were sent at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_spark.client.encoding.routing import Router, Rows
from kmq_spark.client.encoding.storable import one_is_unstorable, unstorable
from kmq_spark.client.sending.few_rows import FewRows, are_few
from kmq_spark.client.sending.row_work import RowWork
from kmq_spark.client.sending.sends import RowSends
from kmq_spark.client.sending.work import Means
from kmq_storage.format.few_rows import decode_rows, encode_rows
from kmq_storage.format.records import (
    HEADERS,
    KEY,
    decode_batch,
    stored_schema,
    timestamps_of,
)
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.staging import PartitionRecords
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.log.state.topic_state import Topic
from kmq_storage.model import TopicSettings
from tests.support.storage import encoded_batch

times = st.integers(-(2**63), 2**63 - 1)
sent_times = st.integers(0, 2**63 - 1)
some_bytes = st.binary(max_size=70)


def _lists(*columns: st.SearchStrategy[object]) -> st.SearchStrategy[list[tuple[object, ...]]]:
    return st.lists(st.tuples(*columns), min_size=1, max_size=8)


@given(rows=_lists(times, some_bytes, some_bytes), keyed=st.booleans())
def test_the_message_of_a_few_rows_is_arrows_own(rows, keyed: bool):
    timestamps, keys, values = (list(column) for column in zip(*rows, strict=True))
    columns = [timestamps, keys, values] if keyed else [timestamps, values]
    schema = stored_schema(1 if keyed else 0)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    size = sum(map(len, values)) + (sum(map(len, keys)) if keyed else 0)
    short = encode_rows(timestamps, keys if keyed else None, values)
    assert short == encoded_batch(batch, size=size)


maybe_bytes = st.none() | some_bytes


@given(
    rows=_lists(times, maybe_bytes, maybe_bytes),
    before=st.integers(0, 3),
    columns=st.sampled_from([0, KEY, KEY | HEADERS]),
)
def test_what_is_read_without_arrow_is_what_arrow_reads(rows, before: int, columns: int):
    schema = stored_schema(columns)
    made = [dict(zip(("timestamp", "key", "value"), row, strict=True)) for row in rows]
    batch = pa.RecordBatch.from_pylist([made[0]] * before + made, schema).slice(before)
    plain = decode_rows(batch.serialize().to_pybytes(), columns)
    read = {name: batch.column(name) for name in schema.names}
    if columns & HEADERS or any(read[name].null_count for name in schema.names):
        assert plain is None
        return
    assert plain is not None
    assert list(plain.timestamps) == timestamps_of(batch).to_pylist()
    assert plain.keys == (read["key"].to_pylist() if columns else None)
    assert plain.values == read["value"].to_pylist()


def test_what_is_no_message_of_these_columns_is_left_to_arrow():
    message = encode_rows([1], [b"key"], [b"value"]).message.to_pybytes()
    assert decode_rows(message, KEY) is not None
    for other in (b"", message[:50], bytes(len(message))):
        assert decode_rows(other, KEY) is None
    assert decode_rows(message, 0) is None


def _topic() -> Topic:
    topic = Topic(bytes(16), "t", None)
    topic.settings = TopicSettings(max_record_bytes=100)
    topic.enlarge(5)
    return topic


def _state() -> StoreState:
    state = StoreState()
    state.add_topic(_topic())
    return state


def _means() -> Means:
    def place(parts: Sequence[PartitionRecords], room: int) -> Unit:
        raise AssertionError("a few rows are placed without Arrow")

    return Means(Router("murmur2"), place, lambda: 0, lambda _topic, _places: {})


def _sends(rows: list[tuple[int, bytes, bytes]], *, keyed: bool) -> RowSends:
    sends = RowSends("t", lambda *, helping=False: None)
    for time, key, value in rows:
        sends.times.append(time)
        sends.keys.append(key if keyed else None)
        sends.values.append(value)
    return sends


@given(
    rows=_lists(sent_times, some_bytes, st.binary(max_size=120)),
    keyed=st.booleans(),
    repeated=st.sampled_from([1, 16]),
)
def test_both_ways_give_the_same_batches_places_and_errors(rows, keyed: bool, repeated: int):
    rows *= 1 if keyed else repeated
    few, many = _sends(rows, keyed=keyed), _sends(rows, keyed=keyed)
    assert are_few(few)
    short, long = FewRows(few), RowWork([many])
    unit = short.unit(_state(), _means(), 0)
    parts = long.encode(_topic(), Router("murmur2"))
    expected = {
        part.partition: (sized.batch, encoded_batch(sized.batch, size=sized.size))
        for part in parts
        for sized in part.batches
    }
    assert {entry.partition for entry in unit.entries} == set(expected)
    for entry, body in zip(unit.entries, unit.bodies, strict=True):
        batch, encoded = expected[entry.partition]
        assert decode_batch(body, stored_schema(entry.columns), entry.checksum, "") == batch
        told = (entry.rows, entry.columns, entry.min_timestamp, entry.max_timestamp, entry.size)
        assert told == (
            encoded.rows,
            encoded.columns,
            encoded.min_timestamp,
            encoded.max_timestamp,
            encoded.size,
        )
    assert {row: str(error) for row, error in few.row_errors.items()} == {
        row: str(error) for row, error in many.row_errors.items()
    }
    bases = {partition: 1_000 * partition for partition in expected}
    for work in (short, long):
        work.committed(bases)
    if expected:
        assert short.places(0, len(rows)) == long.places(0, len(rows))


@given(sizes=st.lists(st.integers(0, 200), min_size=1, max_size=9), partition=st.integers(-1, 6))
def test_a_single_send_is_refused_by_the_rule_of_many_rows(sizes: list[int], partition: int):
    rows = cast("Rows", SimpleNamespace(sizes=np.array(sizes)))
    many = unstorable(_topic(), rows, partition)
    assert many.tolist() == [one_is_unstorable(_topic(), n, partition, None) for n in sizes]
    assert many.tolist() == [size > 100 or not 0 <= partition < 5 for size in sizes]


@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_records_are_the_same_however_many_are_sent_at_once(counts: list[int]):
    with kmq.open("memory://few-rows") as store:
        store.create_topic("t", partitions=3)
        try:
            with store.producer() as producer:
                number = 0
                for count in counts:
                    sent = [
                        producer.send("t", b"%d" % each, b"%d" % (each % 7))
                        for each in range(number, number + count)
                    ]
                    places = [future.result() for future in sent]
                    for each, place in zip(range(number, number + count), places, strict=True):
                        partition, offset = place.partition, place.offset
                        span = {partition: offset}, {partition: offset + 1}
                        found = store.read("t", start=span[0], end=span[1], partitions=[partition])
                        assert found.read_all()["value"].to_pylist() == [b"%d" % each]
                    number += count
        finally:
            store.delete_topic("t")


@pytest.mark.parametrize("take", [1, 2, 3, 4])
def test_few_records_that_come_to_a_consumer_can_be_taken_in_every_way(take: int):
    with kmq.open("memory://few-records") as store, store.producer() as producer:
        store.create_topic("t")
        consumer = store.consumer(topics=["t"])
        try:
            for number in range(3):
                sent = [b"%d-%d" % (number, each) for each in range(3)]
                future = producer.send_batch("t", sent, [b"k"] * 3)
                future.result()
                if number == 1:
                    found = [record.value for record in consumer.consume(take, timeout=1.0)]
                    while len(found) < 3:
                        found += consumer.consume_arrow(take)["value"].to_pylist()
                else:
                    found = [consumer.poll(1.0).value for _ in range(3)]
                assert found == sent
        finally:
            store.delete_topic("t")
