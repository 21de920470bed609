"""Consumers that were shut down: what they had read and nobody got."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging as oms
from kmq_spark.openmessaging import access
from tests.unit.openmessaging.received import attached, bodies


def test_what_was_read_ahead_at_shutdown_is_the_next_consumers_alone(
    settings: oms.KeyValue, producer: oms.Producer
):
    for body in (b"1", b"2", b"3"):
        producer.send(producer.create_bytes_message_to_topic("t", body))
    producer.flush()
    first = attached(settings, topics=["t"])
    assert first.poll().get_body() == b"1"  # type: ignore[union-attr]
    first.shutdown()
    with pytest.raises(kmq.ClosedError):
        first.poll()
    assert bodies(attached(settings)) == [b"2", b"3"]


def test_a_forked_child_neither_reads_on_nor_moves_its_parents_position(
    settings: oms.KeyValue, producer: oms.Producer
):
    for body in (b"1", b"2", b"3"):
        producer.send(producer.create_bytes_message_to_topic("t", body))
    producer.flush()
    consumer = attached(settings, topics=["t"])
    assert consumer.poll().get_body() == b"1"  # type: ignore[union-attr]
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.read(told, 1)  # the parent has got all
            for call in (consumer.poll, lambda: consumer.ack("t:0:0")):
                with pytest.raises(kmq.IllegalStateError, match="belongs to the parent"):
                    call()
            consumer.shutdown()
            code = 0
        finally:
            os._exit(code)
    assert bodies(consumer) == [b"2", b"3"]
    consumer.shutdown()
    os.write(tell, b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert bodies(attached(settings)) == []


def test_a_producer_that_is_refused_leaves_no_store_open(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
    kmq.clone(tmp_path / "store", tmp_path / "clone", read_only=True)
    before = access._shared.copy()
    with pytest.raises(kmq.IllegalStateError, match="read-only"):
        oms.Producer(oms.KeyValue().put("STORE_PATH", tmp_path / "clone"))
    assert access._shared == before
