"""Which partition a record goes to: Kafka's murmur2, stickiness, a callable, or the caller.

Finds: keyed records that land elsewhere than with Kafka, skew of keyless ones, and a partitioner
whose mistakes hurt the records of others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kmq_spark as kmq
from kmq_spark.client.encoding import routing
from kmq_spark.client.encoding.routing import partitions_by_key
from kmq_storage.format import murmur2 as hashing
from kmq_storage.format.murmur2 import murmur2
from tests.unit.client.stored import records

#: org.apache.kafka.common.utils.UtilsTest.testMurmur2.
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def _slow_murmur2(data: bytes) -> int:
    """Kafka's Utils.murmur2, statement by statement, as an unsigned number."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    h = 0x9747B28C ^ length
    for position in range(0, length - length % 4, 4):
        k = int.from_bytes(data[position : position + 4], "little")
        k = k * m & mask
        k ^= k >> 24
        k = k * m & mask
        h = h * m & mask
        h ^= k
    rest = data[length - length % 4 :]
    if len(rest) == 3:
        h ^= rest[2] << 16
    if len(rest) >= 2:
        h ^= rest[1] << 8
    if len(rest) >= 1:
        h ^= rest[0]
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    h ^= h >> 15
    return h


@pytest.mark.parametrize(("key", "expected"), KAFKA_VECTORS.items())
def test_murmur2_gives_kafkas_own_test_vectors(key: bytes, expected: int):
    assert murmur2(pa.array([key], pa.binary())).view("i4")[0] == expected
    assert _slow_murmur2(key) == expected & 0xFFFFFFFF


@given(st.lists(st.binary(max_size=40), max_size=80), st.integers(0, 5))
def test_murmur2_of_a_column_is_the_slow_one_of_every_key(keys: list[bytes], skipped: int):
    column = pa.array(keys, pa.binary()).slice(min(skipped, len(keys)))
    assert murmur2(column).tolist() == [_slow_murmur2(key) for key in column.to_pylist()]


@given(st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=50))
def test_murmur2_of_keys_of_one_length_is_the_slow_one(keys: list[bytes]):
    column = pa.array(keys, pa.binary())
    assert murmur2(column).tolist() == [_slow_murmur2(key) for key in keys]


def test_a_long_key_among_many_short_ones_costs_no_look_at_all_keys_for_each_of_its_words(
    monkeypatch: pytest.MonkeyPatch,
):
    looks, mixed = [0], hashing._mixed

    def counted(*arguments: Any) -> Any:
        looks[0] += 1
        return mixed(*arguments)

    monkeypatch.setattr(hashing, "_mixed", counted)
    keys = [b"key %d" % number for number in range(1000)]
    keys[500:500] = [bytes(range(256)) * 2100 + b"end", b"x" * 70_001]  # of more than one piece
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [_slow_murmur2(key) for key in keys]
    assert looks[0] <= hashing._LONG // 4


@given(st.lists(st.binary(max_size=12), min_size=1), st.integers(1, 1000))
def test_a_key_goes_to_the_positive_hash_modulo_the_partitions(keys: list[bytes], partitions: int):
    found = partitions_by_key(pa.array(keys, pa.binary()), partitions).tolist()
    assert found == [(_slow_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]


def test_keyed_records_land_where_kafkas_default_partitioner_puts_them(store: kmq.Store):
    store.create_topic("t", partitions=7)
    keys = [*KAFKA_VECTORS, b"", *(b"%d" % number for number in range(100))]
    with store.producer() as producer:
        one = producer.send("t", b"v", keys[0])
        batch = producer.send_batch("t", [b"v"] * len(keys), keys)
        rows = pa.table({"value": [b"v"] * len(keys), "key": keys})
        producer.send_arrow("t", rows).result(10)
    expected = [(_slow_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]
    assert one.result().partition == expected[0]
    assert [sent.partition for sent in batch.result()] == expected
    by_key = {record.key: record.partition for record in records(store, "t")}
    assert by_key == dict(zip(keys, expected, strict=True))


def test_keyless_records_stick_to_a_partition_for_a_batch_then_take_the_next(store: kmq.Store):
    store.create_topic("t", partitions=3)
    with store.producer(linger=1.0) as producer:
        used = []
        for _ in range(6):
            sent = [producer.send("t", b"v") for _ in range(10)]
            producer.flush()
            (partition,) = {future.result().partition for future in sent}
            used.append(partition)
    assert used[:3] == used[3:]
    assert sorted(used[:3]) == [0, 1, 2]


def test_keyless_records_beside_keyed_ones_stick_too(store: kmq.Store):
    store.create_topic("t", partitions=5)
    with store.producer() as producer:
        sent = producer.send_batch("t", [b"v"] * 40, [b"k", None] * 20).result(10)
    assert len({place.partition for place in sent[1::2]}) == 1
    assert {place.partition for place in sent[::2]} == {(_slow_murmur2(b"k") & 0x7FFFFFFF) % 5}


def test_no_key_is_hashed_where_there_is_one_partition(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """It is most of what a put to keyed queues costs."""
    hashed: list[object] = []
    monkeypatch.setattr(routing, "partitions_by_key", lambda *asked: hashed.append(asked))
    store.create_topic("one")
    with store.producer() as producer:
        sent = producer.send_batch("one", [b"v"] * 50, [b"k%d" % n for n in range(50)]).result()
    assert [each.offset for each in sent] == list(range(50))
    queues = store.keyed_queues("inbox")
    assert queues.put_batch(["a"] * 50, [b"v"] * 50) == list(range(50))
    assert not hashed


def test_the_caller_chooses_the_partition(store: kmq.Store):
    store.create_topic("t", partitions=4)
    with store.producer() as producer:
        one = producer.send("t", b"v", b"key", partition=2)
        many = producer.send_batch("t", [b"v"] * 3, [b"a", b"b", None], partition=3)
        data = pa.table({"value": [b"v"] * 3, "partition": pa.array([1, 0, None], pa.int32())})
        arrow = producer.send_arrow("t", data, partition=2)
        assert one.result(10).partition == 2
        assert [sent.partition for sent in many.result(10)] == [3, 3, 3]
        assert sorted(arrow.result(10).offsets) == [0, 1, 2]


def test_a_callable_gets_topic_key_and_number_and_decides(store: kmq.Store):
    store.create_topic("t", partitions=4)
    asked = []

    def by_length(topic: str, key: bytes | None, partitions: int) -> int:
        asked.append((topic, key, partitions))
        return len(key or b"") % partitions

    with store.producer(partitioner=by_length) as producer:
        sent = [producer.send("t", b"v", key) for key in (b"", b"a", b"ab", b"abc", None)]
        assert [future.result(10).partition for future in sent] == [0, 1, 2, 3, 0]
    assert set(asked) >= {("t", b"ab", 4), ("t", None, 4)}


def test_a_callable_is_not_asked_for_records_whose_partition_the_caller_chose(store: kmq.Store):
    store.create_topic("t", partitions=2)
    asked = []

    def partitioner(topic: str, key: bytes | None, partitions: int) -> int:
        asked.append(key)
        return 0

    with store.producer(linger=0.2, partitioner=partitioner) as producer:
        producer.send("t", b"v", b"mine", partition=1)
        producer.send("t", b"v", b"yours")
    assert asked == [b"yours"]


@pytest.mark.parametrize("answer", [2, np.int64(2), np.uint8(2), np.array(2)])
def test_a_callable_may_answer_with_any_whole_number(store: kmq.Store, answer: int):
    store.create_topic("t", partitions=4)
    with store.producer(partitioner=lambda *_: answer) as producer:
        assert producer.send("t", b"v", b"k").result(10).partition == 2


@pytest.mark.parametrize(
    "answer", [-1, np.int64(-1), 2, 2**40, "0", None, 0.0, True, np.array([0, 1])]
)
def test_a_bad_answer_of_a_callable_fails_that_record_alone(store: kmq.Store, answer: object):
    store.create_topic("t", partitions=2)

    def partitioner(topic: str, key: bytes | None, partitions: int) -> int:
        return 1 if key == b"good" else answer  # type: ignore[return-value]

    with store.producer(linger=0.2, partitioner=partitioner) as producer:
        good, bad = producer.send("t", b"v", b"good"), producer.send("t", b"v", b"bad")
        also_good = producer.send("t", b"v", b"good")
        assert isinstance(bad.exception(10), kmq.InvalidRequestError)
        assert f"partitions 0 to 1, the partitioner said {answer!r}" in str(bad.exception())
        assert (good.result(10).offset, also_good.result(10).offset) == (0, 1)


async def _awaited(*_: object) -> int:
    return 0


@pytest.mark.parametrize("partitioner", ["murmur3", None, 5, _awaited, np.array([1, 2])])
def test_a_partitioner_is_known_by_name_or_answers_at_once(store: kmq.Store, partitioner: Any):
    with pytest.raises(kmq.InvalidRequestError, match="'murmur2' or a plain callable"):
        store.producer(partitioner=partitioner)


def test_what_a_callable_raises_comes_through_the_future(store: kmq.Store):
    store.create_topic("t", partitions=2)

    def partitioner(topic: str, key: bytes | None, partitions: int) -> int:
        raise RuntimeError("no idea")

    with store.producer(partitioner=partitioner) as producer:
        error = producer.send("t", b"v", b"k").exception(10)
        assert isinstance(error, kmq.InvalidRequestError)
        assert "no idea" in str(error)
        assert producer.send("t", b"v", b"k", partition=1).result(10).offset == 0
