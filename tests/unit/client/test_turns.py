"""Turns of partitions: who reads thousands asks those alone that may have something.

Finds: costs per record that grow with the partitions that are read; one that rests too long.
"""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.consuming.fetcher import Fetcher
from kmq_storage.log.state import changes

PARTITIONS = 300


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that any consumer asks, one after the other."""
    found: list[int] = []
    scan = Fetcher._scan

    def counted(self, state, partition):  # type: ignore[no-untyped-def]
        found.append(partition.partition)
        return scan(self, state, partition)

    monkeypatch.setattr(Fetcher, "_scan", counted)
    return found


def send(store: kmq.Store, *partitions: int) -> None:
    """A record to each of these partitions, in a commit of its own."""
    with store.producer() as producer:
        for partition in partitions:
            producer.send("t", b"%d" % partition, partition=partition).result()


def drained(consumer: kmq.Consumer) -> list[int]:
    """The partitions of all that is there."""
    found: list[int] = []
    while record := consumer.poll():
        found.append(record.partition)
    return found


def test_a_record_is_found_without_asking_all_partitions(store: kmq.Store, asked: list[int]):
    store.create_topic("t", partitions=PARTITIONS)
    with store.consumer("g", topics=["t"]) as consumer:
        assert drained(consumer) == []
        asked.clear()
        for number in range(50):
            send(store, number)
            assert drained(consumer) == [number]
        assert len(asked) <= 50 * 3


def test_a_look_in_vain_asks_nobody_again(store: kmq.Store, asked: list[int]):
    store.create_topic("t", partitions=PARTITIONS)
    with store.consumer(topics=["t"]) as consumer:
        assert drained(consumer) == []
        asked.clear()
        assert [consumer.poll() for _ in range(10)] == [None] * 10
        assert asked == []


def test_more_changes_than_are_remembered_hide_none(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "_KEPT", 3)
    store.create_topic("t", partitions=PARTITIONS)
    with store.consumer(topics=["t"]) as consumer:
        for count in (1, 5, 6, 7, 20):
            assert drained(consumer) == []
            send(store, *range(count))
            assert sorted(drained(consumer)) == list(range(count))


def test_who_rests_comes_again_after_a_seek_a_pause_and_another_state(store: kmq.Store):
    store.create_topic("t", partitions=3)
    send(store, 0, 1, 2)
    with store.consumer(topics=["t"]) as consumer:
        assert sorted(drained(consumer)) == [0, 1, 2]
        consumer.seek("t", 1, 0)
        assert drained(consumer) == [1]
        consumer.pause({"t": [2]})
        send(store, 0, 2)
        assert drained(consumer) == [0]
        consumer.resume()
        assert drained(consumer) == [2]
        store.seal()
        store.checkpoint()
        store.log.reload()
        send(store, 1)
        assert drained(consumer) == [1]


def test_a_topic_that_comes_and_one_that_goes_disturb_nobodys_turn(store: kmq.Store):
    store.create_topic("t", partitions=2)
    store.create_topic("u")
    with store.consumer(pattern="^[tuv]$") as consumer:
        assert drained(consumer) == []
        store.delete_topic("u")
        store.create_topic("v")
        store.add_partitions("t", 4)
        send(store, 3, 0)
        with store.producer() as producer:
            producer.send("v", b"0").result()
        assert sorted(drained(consumer)) == [0, 0, 3]


def test_a_record_that_another_thread_sees_right_behind_a_look_is_not_slept_through(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t")
    look, looks = Fetcher.next_part, [0]

    def overtaken(self, *limits):  # type: ignore[no-untyped-def]
        found = look(self, *limits)
        looks[0] += 1
        if looks[0] == 2:  # the last one before it waits
            send(store, 0)
            store.log.refresh()
        return found

    monkeypatch.setattr(Fetcher, "next_part", overtaken)
    with store.consumer(topics=["t"]) as consumer:
        assert consumer.poll(timeout=20)
        assert looks[0] == 3


def test_a_deleted_topic_is_kept_by_nobody_who_notes_changes(store: kmq.Store):
    store.create_topic("t", partitions=2)
    send(store, 0, 1)
    state = store.log.refresh()
    assert set(state.changes.since(0) or ()) == set(state.topic("t").parts)
    seen = state.changes.count
    store.delete_topic("t")
    state = store.log.refresh()
    assert state.changes.since(seen) is None
    assert state.changes.since(state.changes.count) == []


class NobodyGoesThrough(dict[Any, int]):
    """Positions of which single ones are looked up."""

    def __iter__(self) -> Any:
        raise AssertionError("all positions were gone through")


def test_a_seek_a_pause_and_a_resume_of_one_partition_go_through_no_others(store: kmq.Store):
    store.create_topic("t", partitions=PARTITIONS)
    with store.consumer(topics=["t"]) as consumer:
        fetcher = consumer._assignment.fetcher
        positions, fetcher.positions = fetcher.positions, NobodyGoesThrough(fetcher.positions)
        consumer.seek("t", 7, 0)
        consumer.pause({"t": [7, 8]})
        consumer.resume({"t": [8]})
        fetcher.positions = positions
        assert {each.partition for each in fetcher.paused} == {7}
        with pytest.raises(kmq.IllegalStateError, match=f"t-{PARTITIONS} is not assigned"):
            consumer.pause({"t": [PARTITIONS]})
