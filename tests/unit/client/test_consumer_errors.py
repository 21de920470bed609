"""Finds records that an error takes along: passed over, committed, or kept from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.consuming.consumer import Consumer
from kmq_storage.log.reading.reader import ChunkReader

Take = Callable[[Consumer], int]


def _consume(consumer: Consumer) -> int:
    return len(consumer.consume(1_000, timeout=0.2))


def _consume_arrow(consumer: Consumer) -> int:
    table = consumer.consume_arrow(1_000, timeout=0.2)
    return 0 if table is None else table.num_rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "store", maintenance=False) as store:
        store.create_topic("t", partitions=2)
        yield store


def _fill(store: kmq.Store, *, commits: int) -> None:
    with store.producer() as producer:
        for number in range(commits):
            for partition in range(2):
                value = b"%d/%d" % (partition, number)
                producer.send("t", value, partition=partition).result()


def _damage(store: kmq.Store, value: bytes) -> None:
    for log in Path(store.url, "log").glob("*.log"):
        contents = log.read_bytes()
        at = contents.find(value)
        if at >= 0:
            with log.open("r+b") as file:
                file.seek(at)
                file.write(b"#")


@pytest.mark.parametrize("take", [_consume, _consume_arrow, lambda consumer: consumer.poll()])
def test_what_its_own_handle_trimmed_or_deleted_is_not_handed_out(store: kmq.Store, take: Take):
    _fill(store, commits=10)
    with store.consumer(auto_offset_reset="none") as consumer:
        consumer.assign({"t": [0]})
        consumer.seek("t", 0, 2)
        store.trim("t", {0: 5})
        with pytest.raises(kmq.OffsetOutOfRangeError, match="5"):
            take(consumer)
        consumer.seek("t", 0, 5)
        store.delete_topic("t")
        assert not take(consumer)


@pytest.mark.parametrize("take", [_consume, _consume_arrow])
def test_what_was_gathered_before_an_error_is_handed_out(store: kmq.Store, take: Take):
    _fill(store, commits=10)
    store.set_group_offsets("g", {"t": {0: 0, 1: 0}})
    store.trim("t", {1: 5})
    with store.consumer("g", topics=["t"], auto_offset_reset="none") as consumer:
        rows = 0
        for _ in range(4):
            try:
                rows += take(consumer)
            except kmq.OffsetOutOfRangeError:
                continue
        assert rows == 10
        assert consumer.position() == {"t": {0: 10, 1: 0}}


@pytest.mark.parametrize("take", [_consume, _consume_arrow])
def test_nothing_behind_damage_is_committed_unread(store: kmq.Store, take: Take):
    _fill(store, commits=10)
    _damage(store, b"0/6")
    with store.consumer("g", topics=["t"]) as consumer:
        rows = errors = 0
        for _ in range(6):
            try:
                rows += take(consumer)
            except kmq.CorruptionError:
                errors += 1
        assert errors
        assert rows == 6 + 10
        consumer.commit()
        assert consumer.committed() == {"t": {0: 6, 1: 10}}


def test_a_damaged_partition_keeps_no_turn_from_its_neighbour(store: kmq.Store):
    _fill(store, commits=5)
    _damage(store, b"0/0")
    with store.consumer(topics=["t"]) as consumer:
        found = []
        for _ in range(12):
            try:
                record = consumer.poll(0.2)
            except kmq.CorruptionError:
                continue
            found += [record.value] if record else []
        assert found == [b"1/%d" % number for number in range(5)]


def test_a_trim_above_its_position_stops_no_group_that_commits_by_itself(store: kmq.Store):
    _fill(store, commits=10)
    with store.consumer("g", topics=["t"], auto_commit=True) as consumer:
        assert len(consumer.consume(3, timeout=0.2)) == 3
        store.trim("t", {0: 5, 1: 5})
        rest = consumer.consume(1_000, timeout=0.2)
        assert {record.offset for record in rest} >= set(range(5, 10))
    assert store.describe_group("g").committed == {"t": {0: 10, 1: 10}}


def test_beside_a_damaged_partition_new_records_are_seen(store: kmq.Store):
    _fill(store, commits=3)
    _damage(store, b"0/0")
    with kmq.open(store.url) as other, other.consumer(topics=["t"]) as consumer:
        found: list[bytes | None] = []
        for number in range(12):
            if number == 6:
                with store.producer() as producer:
                    producer.send("t", b"new", partition=1).result()
            try:
                found += [record.value for record in consumer.consume(100, timeout=0.1)]
            except kmq.CorruptionError:
                continue
    assert found == [b"1/0", b"1/1", b"1/2", b"new"]


@pytest.mark.parametrize("take", [_consume, _consume_arrow])
def test_what_was_read_before_the_place_is_out_of_reach_is_handed_out(
    store: kmq.Store, take: Take, monkeypatch: pytest.MonkeyPatch
):
    _fill(store, commits=6)
    original, reads = ChunkReader.read, []

    def failing(reader: ChunkReader, *arguments: Any, **options: Any) -> Any:
        reads.append(arguments)
        if len(reads) == 4:
            raise kmq.UnavailableError("the disk is out of reach")
        return original(reader, *arguments, **options)

    monkeypatch.setattr(ChunkReader, "read", failing)
    with store.consumer() as consumer:
        consumer.assign({"t": [0]})
        assert take(consumer) == 3
        assert consumer.position() == {"t": {0: 3}}
        assert take(consumer) == 3


def test_records_that_can_not_be_made_into_values_are_neither_passed_over_nor_committed(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    _fill(store, commits=3)

    def broken(part: object) -> list[kmq.Record]:
        raise ValueError("not text")

    with store.consumer("g", topics=["t"]) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr("kmq_spark.client.consuming.taking.records_of", broken)
            for _ in range(2):
                with pytest.raises(ValueError, match="not text"):
                    consumer.consume(10, timeout=0.2)
        consumer.commit()
        assert _consume(consumer) == 6
