"""Names and topics of keyed queues: what is refused, and how that is told.

Finds: an error with the length of another name; a queue that is listed and that no call takes; a
topic of queues that can't be made a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues
from kmq_spark.errors import InvalidRequestError


@pytest.mark.parametrize("name", ["", "x" * 65_536], ids=["empty", "long"])
def test_of_many_names_the_one_that_is_refused_is_told_by_its_length(
    queues: KeyedQueues, name: str
):
    calls: list[Callable[[], object]] = [
        lambda: queues.put_batch(["abc", name], [b"1", b"2"]),
        lambda: queues.put_arrow(pa.table({"queue": ["abc", name], "value": ["1", "2"]})),
        lambda: queues.get_many(["abc", name], 0, 1),
    ]
    for call in calls:
        with pytest.raises(InvalidRequestError, match=f" {len(name)} bytes"):
            call()


@pytest.mark.parametrize("key", ["", "x" * 65_536], ids=["empty", "long"])
def test_a_record_whose_key_can_be_no_queue_is_refused_however_it_is_sent(
    store: kmq.Store, queues: KeyedQueues, key: str
):
    table = pa.table({"key": ["a", key, None], "value": ["x", "y", "z"]})
    with store.producer() as producer:
        sent: list[Any] = [
            producer.send("inbox", b"x", key),
            producer.send("inbox", b"x", key, headers={"a": b"b"}),
            producer.send_batch("inbox", [b"x", b"y"], ["a", key]),
            producer.send_arrow("inbox", table),
        ]
        for each in sent:
            with pytest.raises(InvalidRequestError, match=f"1 to 65535 bytes, not {len(key)}"):
                each.result()
        producer.send("inbox", b"x", "x" * 65_535).result()
        producer.send("inbox", b"of no queue").result()
        store.create_topic("other")
        producer.send("other", b"x", key).result()
    assert queues.names() == ["x" * 65_535]


def test_making_a_topic_of_queues_anew_keeps_it_and_warns(store: kmq.Store):
    store.keyed_queues("inbox", retention=60).put("a", b"1").result()
    with pytest.warns(kmq.KmqWarning, match=r"keyed=True \(asked: False\), retention=60"):
        store.create_topic("inbox")
    assert store.keyed_queues("inbox").get("a", 0, 9) == [b"1"]


def test_numbers_of_numpy_are_numbers(store: kmq.Store, queues: KeyedQueues):
    queues.put_batch(["a"] * 5, [b"%d" % n for n in range(5)])
    one: Any = np.int64(1)
    two: Any = np.uint8(2)
    assert queues.get("a", one, two) == [b"1", b"2"]
    assert queues.get_arrow("a", one, two)["index"].to_pylist() == [1, 2]
    assert [each.index for each in queues.receive("a", two)] == [0, 1]
    store.create_topic("orders", partitions=2)
    with store.producer() as producer:
        sent = [producer.send("orders", b"x", partition=one) for _ in range(3)]
        assert [each.result().partition for each in sent] == [1, 1, 1]
    with store.consumer(topics=["orders"]) as consumer:
        consumer.poll()
        consumer.seek("orders", one, two)
        assert [each.offset for each in consumer.consume(timeout=1)] == [2]
    assert store.read("orders", partitions=[one], start={one: two}).read_all().num_rows == 1
    others: list[Any] = [np.float64(1), np.True_, "1", None]
    for bad in others:
        with pytest.raises(InvalidRequestError, match="whole number"):
            queues.get("a", bad, 1)


@pytest.mark.parametrize("kind", ["S", "U", "O"])
def test_arrays_of_numpy_are_taken_whole(queues: KeyedQueues, kind: str):
    names = np.array([b"n1", b"n2"] if kind == "S" else ["n1", "n2"], kind)
    queues.put_batch(names, np.array(["first", "second"]))
    found = queues.get_many(names, 0, 1)
    assert found["value"].to_pylist() == [b"first", b"second"]
    for bad in (np.array([1, 2]), np.array([1.5, 2]), np.array([["n1"], ["n2"]])):
        with pytest.raises(InvalidRequestError, match=r"queues? must be bytes or text"):
            queues.put_batch(bad, [b"1", b"2"])
    assert queues.names() == ["n1", "n2"]


def test_a_group_that_is_too_long_for_a_topic_of_queues_is_told_its_own_limit(store: kmq.Store):
    queues = store.keyed_queues("inbox")
    queues.put("a", b"1").result()
    with pytest.raises(InvalidRequestError, match=r"group name has 244 .* at most 243"):
        queues.receive("a", group="g" * 244)
    (delivery,) = queues.receive("a", group="g" * 243)
    delivery.ack()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_columns_of_tables_are_names_and_messages(queues: KeyedQueues, kind: pa.DataType):
    names = pa.chunked_array([pa.array(["b", "a"], kind), pa.array(["b"], kind)])
    assert queues.put_batch(names, names) == [0, 0, 1]
    assert queues.get_many(names, 0, 1)["value"].to_pylist() == [b"b", b"a", b"b"]
    assert queues.get_many(names.slice(0, 0), 0, 1).num_rows == 0
    assert queues.put_batch(names.dictionary_encode(), names) == [2, 1, 3]
