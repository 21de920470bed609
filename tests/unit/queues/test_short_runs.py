"""Queues whose records were finished in no order: what is left is read and held at once."""

from __future__ import annotations

import random
from operator import attrgetter, itemgetter
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.queues import reading
from kmq_spark.client.queues.reading import parts_of
from kmq_storage.format.queue_entries import Run
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.queues.source import Source
from tests.support.clock import Clock

_SIZES = pytest.mark.parametrize("size", [1, 5_000], ids=["small", "large"])


def _every_second_left(store: kmq.Store, rows: int, size: int, **settings: Any) -> kmq.Queue:
    """A queue of two partitions of which every second record is done, and was handed out once."""
    store.create_topic("t", partitions=2)
    store.create_queue("q", topics=["t"], lock_timeout=10, **settings)
    with store.producer() as producer:
        for partition in range(2):
            values = [b"%d" % n * size for n in range(rows)]
            keys = [b"%d" % n for n in range(rows)]
            producer.send_batch("t", values, keys, partition=partition)
    queue = store.queue("q")
    table = queue.receive_arrow(2 * rows)
    queue.ack(table.filter([n % 2 == 0 for n in range(2 * rows)]))
    return queue


@_SIZES
@pytest.mark.parametrize("as_table", [True, False], ids=["table", "deliveries"])
@pytest.mark.parametrize("order", ["none", "key"])
def test_short_runs_near_each_other_are_read_at_once(
    store: kmq.Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    order: str,
    size: int,
    as_table: bool,
):
    queue = _every_second_left(store, 60, size, order=order)
    clock.pass_seconds(11)
    reads = []
    read = ChunkReader.read

    def counted(*arguments: Any, **more: Any) -> Any:
        reads.append(arguments)
        return read(*arguments, **more)

    monkeypatch.setattr(ChunkReader, "read", counted)
    got: Any = queue.receive_arrow() if as_table else queue.receive(120)
    assert len(reads) == 2
    rows = (
        map(itemgetter("partition", "offset", "value"), got.to_pylist())
        if as_table
        else map(attrgetter("partition", "offset", "value"), got)
    )
    assert sorted(rows) == [(p, n, b"%d" % n * size) for p in range(2) for n in range(1, 60, 2)]
    queue.ack(got)
    assert queue.stats().acked == 120


def test_records_of_one_priority_among_ten_are_read_at_once(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    chance = random.Random(7)
    store.create_queue("q")
    with store.producer(linger=5.0) as producer:
        priorities = [chance.randrange(10) for _ in range(1_000)]
        for number, priority in enumerate(priorities):
            producer.send_to_queue("q", b"%d" % number, priority=priority)
    firsts = [number for number, priority in enumerate(priorities) if priority == 9]
    looked = []

    def counted(log: Any, reader: Any, run: Run) -> Any:
        looked.append(run)
        return parts_of(log, reader, run)

    monkeypatch.setattr(reading, "parts_of", counted)
    got = store.queue("q", prefetch=1).receive(len(firsts))
    assert [each.value for each in got] == [b"%d" % number for number in firsts]
    assert len(looked) <= len(firsts) // 5


def test_short_runs_of_different_deliveries_are_acknowledged_from_one_table(
    store: kmq.Store, clock: Clock
):
    queue = _every_second_left(store, 60, 1, order="key")
    clock.pass_seconds(11)
    queue.receive(30)
    clock.pass_seconds(11)
    table = queue.receive_arrow()
    assert table.num_rows == 60
    queue.ack(table)
    assert queue.stats().acked == 120


def test_damage_between_short_runs_keeps_nobody_from_them(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        for n in range(3):
            producer.send("t", b"%d" % n).result()
    queue = store.queue("q", prefetch=1)
    first, second, third = queue.receive(3)
    second.ack()
    first.nack(0)
    third.nack(0)
    read = ChunkReader.read

    def damaged(reader: ChunkReader, chunk: Any, *arguments: Any, **more: Any) -> Any:
        if chunk.base_offset == 1:
            raise kmq.CorruptionError("as if its bytes were damaged")
        return read(reader, chunk, *arguments, **more)

    monkeypatch.setattr(ChunkReader, "read", damaged)
    held = queue.receive(9)
    assert [each.value for each in held] == [b"0", b"2"]
    for each in held:
        each.nack(0)
    assert queue.receive_arrow()["value"].to_pylist() == [b"0", b"2"]


def _source(start: int) -> Source:
    return Source(start, looked=False, unnumbered=0)


def test_many_runs_are_held_as_if_each_were_locked_for_itself():
    one_by_one, at_once = _source(0), _source(0)
    for source in (one_by_one, at_once):
        source.lock([Run(b"t", 0, 0, 20_000, 1)], 5)
        for first in range(0, 10_000, 3):
            source.finish(Run(b"t", 0, first, 1, 1))
    runs = [Run(b"t", 0, first, 2, 2 + first % 2) for first in range(1, 10_000, 3)]
    runs += [Run(b"t", 0, 10_000, 10_000, 2), Run(b"t", 0, 20_000, 5, 1)]
    for run in runs:
        one_by_one.lock([run], 99)
    at_once.lock(runs, 99)
    assert at_once.rows.all().tolist() == one_by_one.rows.all().tolist()
    assert at_once.next == one_by_one.next == 20_005


def test_a_run_that_has_no_rows_is_held_all_the_same():
    source = _source(100)
    runs = [Run(b"t", 0, first, 1, 1) for first in range(0, 90, 3)]
    source.lock(runs, 99)
    assert source.rows.all()["offset"].tolist() == list(range(0, 90, 3))
    assert all(source.are_held(run, 50) for run in runs)
