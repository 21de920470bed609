"""Numbers of rows and partitions that are no ints: those of Arrow and numpy count as theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.v2 import KmqBroker
from tests.support.clock import Clock


@pytest.mark.parametrize("one", [np.int64(1), np.uint8(1), pa.scalar(1), pa.scalar(1, pa.int8())])
def test_a_whole_number_of_arrow_or_numpy_is_one(store: kmq.Store, one: Any):
    store.create_topic("t", partitions=2)
    with store.producer(batch_bytes=one, max_pending_bytes=one) as producer:
        for send in (producer.send("t", b"1", partition=one), producer.send_batch("t", [b"2"])):
            send.result(10)
        data = pa.table({"value": [b"3"]})
        assert producer.send_arrow("t", data, partition=one).result(10).offsets == {1: (1, 2)}
    assert store.read("t", partitions=[one], batch_rows=one).read_next_batch().num_rows == 1
    assert store.find("t", limit=one).num_rows == 1
    with store.consumer() as consumer:
        consumer.assign({"t": [one]})
        assert len(consumer.consume(one)) == 1
        assert consumer.consume_arrow(one).num_rows == 1
    store.create_queue("q", topics=["t"])
    with store.queue("q", prefetch=one) as queue:
        assert len(queue.receive(one)) == queue.receive_arrow(one).num_rows == 1
        assert queue.redrive(one) == 0


@pytest.mark.parametrize("two", [np.int64(2), np.uint8(2), pa.scalar(2)])
def test_a_whole_number_of_arrow_or_numpy_is_one_in_settings_too(store: kmq.Store, two: Any):
    bounds = {"retention_bytes": two, "capacity": two, "max_record_bytes": two}
    made = store.create_topic("t", partitions=two, retention=two, uniq_window=two, **bounds)
    assert made.settings == store.create_topic("u", retention=2, uniq_window=2, **bounds).settings
    assert store.add_partitions("u", two).partitions == made.partitions == 2
    assert store.alter_topic("u", capacity=two, retention=two).settings == made.settings
    times = {"lock_timeout": two, "backoff": [two], "uniq_window": two}
    queue = store.create_queue("q", max_deliveries=two, capacity=two, **times)
    assert (queue.settings.max_deliveries, queue.settings.backoff) == (2, (2.0,))
    with store.producer() as producer:
        producer.send_to_queue("q", b"first", priority=np.int64(9)).result(10)


@pytest.mark.parametrize("half", [np.float32(0.5), np.float64(0.5), np.float16(0.5)])
def test_a_number_of_numpy_is_as_many_seconds(store: kmq.Store, half: Any):
    store.create_topic("t")
    assert store.create_queue("q", topics=["t"], lock_timeout=half).settings.lock_timeout == 0.5
    assert store.alter_topic("t", retention=half).settings.retention == 0.5
    with store.producer(linger=half) as producer:
        assert producer.flush(half) == producer.flush(np.int64(0)) == 0
    with store.consumer(topics=["t"]) as consumer:
        assert consumer.poll(np.int64(0)) is None
    for nothing in (np.float32("nan"), np.True_, np.array([0.5, 0.5])):
        with pytest.raises(kmq.InvalidRequestError, match="linger must be seconds"):
            store.producer(linger=nothing)


@pytest.mark.parametrize("nothing", [pd.NA, np.array([1, 2]), None, 5])
def test_a_word_is_one_of_the_choices_and_nothing_else(store: kmq.Store, nothing: Any):
    for option, call in (
        ("durability", lambda: kmq.open("memory://words", durability=nothing)),
        ("assignor", lambda: store.consumer("g", assignor=nothing)),
        ("auto_offset_reset", lambda: store.consumer("g", auto_offset_reset=nothing)),
    ):
        with pytest.raises(kmq.InvalidRequestError, match=f"{option} must be one of"):
            call()


@pytest.mark.parametrize("unit", ["h", "m", "s", "ms", "us", "ns"])
def test_a_duration_of_numpy_is_one_whatever_its_unit(store: kmq.Store, clock: Clock, unit: str):
    hour: Any = np.timedelta64(1, "h").astype(f"timedelta64[{unit}]")
    assert store.create_queue("q", lock_timeout=hour).settings.lock_timeout == 3600
    with store.producer(linger=0) as producer:
        producer.send_to_queue("q", b"1", delay=hour).result(10)
    clock.pass_seconds(3599)
    assert store.queue("q").receive() == []
    clock.pass_seconds(1)
    assert len(store.queue("q").receive(timeout=hour)) == 1


@pytest.mark.parametrize("odd", [np.timedelta64(1, "Y"), np.timedelta64("NaT", "s")])
def test_a_duration_of_numpy_without_a_length_is_refused_by_name(store: kmq.Store, odd: Any):
    store.create_queue("q")
    with store.producer() as producer, pytest.raises(kmq.InvalidRequestError, match="delay must"):
        producer.send_to_queue("q", b"1", delay=odd)


def test_a_duration_is_no_number_of_milliseconds(store: kmq.Store):
    array = KmqBroker(store).create_topic("t")
    for duration in (timedelta(seconds=1), np.timedelta64(1, "s")):
        with pytest.raises(kmq.InvalidRequestError, match="milliseconds"):
            array.poll("c", timeout_ms=duration)  # type: ignore[arg-type]
