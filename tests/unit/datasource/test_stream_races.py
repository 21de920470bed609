"""Finds streams that are disturbed by what others do to the store while a batch is on its way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from kmq_spark.datasource import stream_reader
from kmq_spark.datasource.stream_reader import KmqStreamReader
from tests.spark.shop import Place, Shop
from tests.unit.datasource.engine import ALL, Stream


def test_a_fast_writer_keeps_no_run_from_ending(shop: Shop) -> None:
    stopped, first = threading.Event(), threading.Event()

    def write() -> None:
        while not stopped.is_set():
            shop.send("orders", 0, 20)
            first.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert first.wait(30)
        stream = Stream(shop, startingOffsets="earliest", maxOffsetsPerTrigger="2000")
        stream.start(available_now=True).all_available()
        read = len(stream.sink.places)
        while len(shop.places("orders")) <= read:  # the writer goes on
            assert writer.is_alive()
    finally:
        stopped.set()
        writer.join()
    assert stream.sink.places == shop.places("orders")[:read]


def test_records_that_come_between_planning_and_reading_are_in_the_next_batch(shop: Shop) -> None:
    sent = shop.send("orders", 0, 3)
    reader = Stream(shop, startingOffsets="earliest").start().reader
    end = reader.latestOffset(reader.initialOffset(), ALL)
    planned = reader.partitions(reader.initialOffset(), end)
    later = shop.send("orders", 0, 4)
    shop.store.seal()
    assert _read(reader, planned) == sent
    assert _read(reader, reader.partitions(end, reader.latestOffset(end, ALL))) == later


def test_tasks_of_a_topic_that_is_deleted_meanwhile_read_to_their_end(shop: Shop) -> None:
    sent = shop.send("orders", 0, 3)
    reader = Stream(shop, startingOffsets="earliest", failOnDataLoss="false").start().reader
    end = reader.latestOffset(reader.initialOffset(), ALL)
    planned = reader.partitions(reader.initialOffset(), end)
    shop.delete("orders")
    shop.create("orders", 3)
    again = shop.send("orders", 0, 2)
    assert _read(reader, planned) == sent
    assert _read(reader, reader.partitions(end, reader.latestOffset(end, ALL))) == again


def test_the_largest_limit_there_is_does_not_overflow(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    stream = Stream(
        shop,
        startingOffsets='{"orders":{"0":5,"1":0,"2":0}}',
        maxOffsetsPerTrigger=str(2**63 - 1),
    )
    stream.start().all_available()
    assert stream.sink.places == [("orders", 0, n) for n in range(5, 10)]


def _read(reader: KmqStreamReader, tasks: list[InputPartition]) -> list[Place]:
    rows: list[Place] = []
    for task in tasks:
        for batch in reader.read(task):
            columns = batch.select(["topic", "partition", "offset"]).to_pydict().values()
            rows += zip(*columns, strict=True)
    return rows


def test_pages_that_are_collected_while_a_batch_is_planned_are_looked_for_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = shop.send("orders", 0, 3)
    shop.store.seal()
    shop.store.checkpoint()
    begins = {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"}
    reader = Stream(shop, **begins).start().reader
    for look in (stream_reader.bounds_by_offset, stream_reader.plan):
        monkeypatch.setattr(stream_reader, look.__name__, _once_before(look, shop))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert _read(reader, reader.partitions(start, end))[:3] == sent


def _once_before(look: Callable[..., Any], shop: Shop) -> Callable[..., Any]:
    """Collects what the look was about to look at, the first time."""
    moves = iter([True])

    def looking(*args: Any, **more: Any) -> Any:
        if next(moves, False):
            shop.send("orders", 0, 3)
            shop.store.seal()
            shop.store.checkpoint()
            shop.store.collect(grace=0)
        return look(*args, **more)

    return looking
