"""How many bytes wait in memory for the listener of an orderly consumer.

Finds: process queues that are limited by counts alone and take gigabytes of large records, and
partitions that nobody goes on with once they were full.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client.orderly import reading
from tests.support.waiting import until
from tests.unit.orderly.listening import Gate, Listener, orderly

MOST, LARGE, RECORDS = 1_000_000, 40_000, 50


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_WAITING_BYTES", MOST)
    monkeypatch.setattr(reading, "_SHARE_MIN", MOST // 10)


def _queues(consumer: kmq.OrderlyConsumer) -> list[Any]:
    return [] if consumer._reading is None else list(consumer._reading.queues.values())


def _are_full(consumer: kmq.OrderlyConsumer, partitions: int) -> bool:
    queues = _queues(consumer)
    return len(queues) == partitions and all(queue.is_full for queue in queues)


def _send(store: kmq.Store, partitions: int, values: list[Any], *, together: bool) -> None:
    with store.producer() as producer:
        for partition in range(partitions):
            for some in [values] if together else [[value] for value in values]:
                producer.send_batch("t", some, partition=partition)


def _heard(consumer: kmq.OrderlyConsumer, listener: Listener, calls: int) -> None:
    until(lambda: listener.answered == calls)
    assert consumer.process_queues()["t"]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("partitions", [1, 4])
def test_large_records_wait_up_to_the_bytes_that_their_partition_has_room_for(
    store: kmq.Store, partitions: int, together: bool
):
    store.create_topic("t", partitions=partitions)
    _send(store, partitions, [bytes(LARGE)] * RECORDS, together=together)
    gate = Gate()
    listener = Listener(gate)
    with orderly(store, listener) as consumer:
        until(lambda: _are_full(consumer, partitions))
        waiting = [queue.state.waiting for queue in _queues(consumer)]
        held = [sum(len(each.value) for each in some) for some in waiting]
        assert max(held) <= MOST // partitions
        assert min(held) >= MOST // partitions // 3
        gate.opened.set()
        _heard(consumer, listener, partitions * RECORDS)
    for partition in range(partitions):
        assert listener.offsets(partition) == list(range(RECORDS))


def test_records_larger_than_the_room_come_one_after_the_other(store: kmq.Store):
    store.create_topic("t")
    _send(store, 1, [bytes(MOST)] * 5, together=True)
    gate = Gate()
    listener = Listener(gate)
    with orderly(store, listener) as consumer:
        until(lambda: _are_full(consumer, 1) and bool(_queues(consumer)[0].state.waiting))
        assert len(_queues(consumer)[0].state.waiting) == 1
        gate.opened.set()
        _heard(consumer, listener, 5)
    assert listener.offsets() == list(range(5))


@pytest.mark.parametrize("typed", [True, False])
def test_headers_and_the_values_of_typed_records_count_too(store: kmq.Store, typed: bool):
    store.create_topic("t", schema=pa.schema([("texts", pa.list_(pa.string()))]) if typed else None)
    with store.producer() as producer:
        for _ in range(RECORDS):
            if typed:
                producer.send("t", {"texts": ["x" * LARGE]})
            else:
                producer.send("t", b"", headers=[("h", bytes(LARGE))])
    gate = Gate()
    with orderly(store, Listener(gate)) as consumer:
        until(lambda: _are_full(consumer, 1))
        assert len(_queues(consumer)[0].state.waiting) * LARGE <= MOST
        gate.opened.set()
