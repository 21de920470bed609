"""Reading with a consumer: what it hands out, from where, and how long it waits.

Finds: records that are skipped, doubled or out of order; positions that count what nobody got;
waits that end early, late or never.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
import pytest

import kmq_spark as kmq

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Ten records in each of two partitions, one a second, in several commits."""
    store.create_topic("t", partitions=2)
    fill(store, range(10))
    return store


def fill(store: kmq.Store, numbers: range, topic: str = "t") -> None:
    """Send a record with each number to both partitions."""
    with store.producer() as producer:
        for number in numbers:
            for partition in (0, 1):
                when = T0 + timedelta(seconds=number)
                producer.send(topic, b"%d" % number, partition=partition, timestamp=when)
            if number % 3 == 0:
                producer.flush()


def numbers(records: list[kmq.Record]) -> dict[int, list[int]]:
    """The values by partition, in the order in which they came."""
    found: dict[int, list[int]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(int(record.value or b""))
    return found


def drain(consumer: kmq.Consumer) -> list[kmq.Record]:
    """Everything that is there."""
    found: list[kmq.Record] = []
    while some := consumer.consume(7, timeout=0):
        found += some
    return found


def test_each_partition_comes_whole_and_in_offset_order(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        found = drain(consumer)
    assert numbers(found) == {0: list(range(10)), 1: list(range(10))}
    for partition in (0, 1):
        offsets = [record.offset for record in found if record.partition == partition]
        assert offsets == list(range(10))


def test_poll_consume_and_arrow_take_turns_and_lose_nothing(shop: kmq.Store):
    with shop.consumer() as consumer:
        consumer.assign({"t": [1]})
        assert consumer.poll().value == b"0"  # type: ignore[union-attr]
        table = consumer.consume_arrow(2, timeout=0)
        assert table is not None
        assert table["value"].to_pylist() == [b"1", b"2"]
        assert [record.value for record in consumer.consume(3)] == [b"3", b"4", b"5"]
        assert consumer.position() == {"t": {1: 6}}
        assert consumer.poll().value == b"6"  # type: ignore[union-attr]
        rest = consumer.consume_arrow(timeout=0)
        assert rest is not None
        assert rest["offset"].to_pylist() == [7, 8, 9]
        assert consumer.poll() is None
        assert consumer.consume(timeout=0) == []
        assert consumer.consume_arrow(timeout=0) is None


def test_consume_gives_at_most_what_was_asked_for(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        assert [len(consumer.consume(n, timeout=0)) for n in (1, 4, 100, 5)] == [1, 4, 15, 0]


def test_arrow_has_the_columns_of_read(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        found = consumer.consume_arrow(timeout=0)
        assert found is not None
        assert found.schema == shop.read("t").schema
        assert found.sort_by([("partition", "ascending"), ("offset", "ascending")]).equals(
            shop.read("t").read_all().combine_chunks()
        )


@pytest.mark.parametrize("wait", ["poll", "consume", "consume_arrow"])
def test_a_wait_ends_after_its_time_with_nothing(shop: kmq.Store, wait: str):
    with shop.consumer(topics=["t"], auto_offset_reset="latest") as consumer:
        for timeout in (0, 0.0, 0.2):
            started = time.monotonic()
            assert not getattr(consumer, wait)(timeout=timeout)
            assert timeout <= time.monotonic() - started < timeout + 5


@pytest.mark.parametrize("wait", ["poll", "consume", "consume_arrow"])
def test_a_wait_without_limit_ends_when_a_record_comes(shop: kmq.Store, wait: str):
    with shop.consumer(topics=["t"], auto_offset_reset="latest") as consumer:
        sender = threading.Timer(0.2, fill, (shop, range(10, 11)))
        sender.start()
        assert getattr(consumer, wait)(timeout=None)
        sender.join()


@pytest.mark.parametrize("wait", ["poll", "consume", "consume_arrow", "iteration"])
def test_a_close_from_another_thread_ends_a_wait(shop: kmq.Store, wait: str):
    consumer = shop.consumer(topics=["t"], auto_offset_reset="latest")
    closer = threading.Timer(0.2, consumer.close)
    closer.start()
    if wait == "iteration":
        assert list(consumer) == []
    else:
        with pytest.raises(kmq.ClosedError):
            getattr(consumer, wait)(timeout=None)
    closer.join()


def test_iteration_hands_out_everything_and_ends_when_closed(shop: kmq.Store):
    consumer = shop.consumer(topics=["t"])
    found = []
    for record in consumer:
        found.append(record)
        if len(found) == 20:
            consumer.close()
    assert numbers(found) == {0: list(range(10)), 1: list(range(10))}


def test_iteration_hands_out_what_partitions_that_were_assigned_have(shop: kmq.Store):
    with shop.consumer() as consumer:
        consumer.assign({"t": [1]})
        assert numbers(list(islice(consumer, 10))) == {1: list(range(10))}


NOTHING: dict[str, dict[str, list[int]]] = {"no topic": {}, "no partition of a topic": {"t": []}}


@pytest.mark.parametrize("made", ["without topics", "unsubscribed", *NOTHING])
def test_who_would_wait_for_nothing_for_ever_is_told_so(shop: kmq.Store, made: str):
    consumer = shop.consumer("g", topics=["t"] if made == "unsubscribed" else None)
    if made == "unsubscribed":
        consumer.unsubscribe()
    if made in NOTHING:
        consumer.assign(NOTHING[made])
    for wait in (lambda: next(iter(consumer)), lambda: consumer.poll(timeout=None)):
        with pytest.raises(kmq.IllegalStateError, match="has no topics"):
            wait()
    assert consumer.poll(timeout=0.01) is None
    consumer.close()
    assert list(consumer) == []


def test_partitions_in_the_place_of_topics_are_refused(shop: kmq.Store):
    for call in (
        lambda: shop.consumer(topics={"t": [0]}),  # type: ignore[arg-type]
        lambda: shop.consumer().subscribe({"t": [0]}),  # type: ignore[arg-type]
        lambda: shop.create_queue("q", topics={"t": [0]}),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            kmq.InvalidRequestError, match=r"topics must be names, not \{'t': \[0\]"
        ):
            call()


def test_one_thread_at_a_time(shop: kmq.Store):
    consumer = shop.consumer(topics=["t"], auto_offset_reset="latest")
    waiting = threading.Thread(target=lambda: list(consumer))
    waiting.start()
    calls: list[Callable[[], Any]] = [
        consumer.poll, consumer.consume, consumer.consume_arrow, consumer.position, consumer.lag,
        consumer.assignment, consumer.pause, consumer.resume, consumer.unsubscribe,
        consumer.seek_to_end, lambda: consumer.seek("t", 0, 0), lambda: consumer.subscribe(["t"]),
    ]  # fmt: skip
    while not consumer._busy.locked():
        time.sleep(0.001)
    for call in calls:
        with pytest.raises(kmq.IllegalStateError, match="thread"):
            call()
    consumer.close()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_closed_consumer_says_so_and_closes_again_in_peace(shop: kmq.Store):
    consumer = shop.consumer(topics=["t"])
    consumer.poll()
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.consume, consumer.consume_arrow, consumer.position,
                 consumer.assignment, consumer.commit, consumer.committed, consumer.lag,
                 consumer.pause, consumer.unsubscribe, consumer.seek_to_beginning):  # fmt: skip
        with pytest.raises(kmq.ClosedError):
            call()
    assert list(consumer) == []


def test_seek_goes_anywhere_in_the_log_and_nowhere_else(shop: kmq.Store):
    with shop.consumer() as consumer:
        consumer.assign({"t": [0]})
        for offset in (7, 0, 9, 3):
            consumer.seek("t", 0, offset)
            assert consumer.position() == {"t": {0: offset}}
            assert consumer.poll().offset == offset  # type: ignore[union-attr]
        consumer.seek("t", 0, 10)
        assert consumer.poll() is None
        for wrong in (11, -1, 2**63):
            with pytest.raises(kmq.OffsetOutOfRangeError) as caught:
                consumer.seek("t", 0, wrong)
            assert (caught.value.context["start"], caught.value.context["end"]) == (0, 10)
        with pytest.raises(kmq.IllegalStateError):
            consumer.seek("t", 1, 0)


def test_after_a_seek_to_an_integer_of_numpy_the_position_can_be_written_as_json(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        consumer.seek("t", np.int64(0), np.int64(3))  # type: ignore[arg-type]
        assert json.loads(json.dumps(consumer.position()["t"]))["0"] == 3


def test_a_seek_in_one_partition_leaves_the_others_where_they_are(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        first = consumer.consume(5, timeout=0)
        position = consumer.position()["t"]
        assert sum(position.values()) == len(first) == 5
        consumer.seek("t", 1, 2)
        assert consumer.position()["t"] == {0: position[0], 1: 2}
        found = numbers(drain(consumer))
    assert found.get(0, []) == list(range(position[0], 10))
    assert found[1] == list(range(2, 10))


def test_seeking_to_beginning_end_and_time(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        consumer.seek_to_end()
        assert consumer.position() == {"t": {0: 10, 1: 10}}
        consumer.seek_to_beginning({"t": [1]})
        assert consumer.position() == {"t": {0: 10, 1: 0}}
        consumer.seek_to_end({"t": [1]})
        consumer.seek_to_beginning()
        assert consumer.position() == {"t": {0: 0, 1: 0}}
        for when, offset in (
            (T0 + timedelta(seconds=4), 4),
            (T0 + timedelta(seconds=4, microseconds=1), 5),
            (datetime(1, 1, 1, tzinfo=UTC), 0),
            (datetime(9999, 12, 31, tzinfo=UTC), 10),
        ):
            consumer.seek_to_time(when)
            assert consumer.position() == {"t": {0: offset, 1: offset}}


def test_lag_counts_what_was_not_handed_out(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        assert consumer.lag() == {"t": {0: 10, 1: 10}}
        consumer.consume(5, timeout=0)
        assert sum(consumer.lag()["t"].values()) == 15
        drain(consumer)
        assert consumer.lag() == {"t": {0: 0, 1: 0}}
        fill(shop, range(10, 12))
        assert consumer.lag() == {"t": {0: 2, 1: 2}}


def test_a_paused_partition_hands_out_nothing_until_it_is_resumed(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        first = consumer.poll()
        assert first is not None
        consumer.pause({"t": [first.partition]})
        other = 1 - first.partition
        assert numbers(drain(consumer)) == {other: list(range(10))}
        consumer.resume({"t": [first.partition]})
        assert numbers(drain(consumer)) == {first.partition: list(range(1, 10))}
        consumer.pause()
        fill(shop, range(10, 11))
        assert drain(consumer) == []
        consumer.resume()
        assert numbers(drain(consumer)) == {0: [10], 1: [10]}


def test_without_a_group_there_is_nothing_to_commit(shop: kmq.Store):
    with shop.consumer(topics=["t"]) as consumer:
        consumer.consume(3)
        for call in (consumer.commit, consumer.committed, lambda: consumer.commit({"t": {0: 1}})):
            with pytest.raises(kmq.IllegalStateError):
                call()
    assert shop.groups() == []


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 20), ("latest", 0)])
def test_a_reset_policy_says_where_reading_begins(shop: kmq.Store, reset: str, expected: int):
    with shop.consumer(topics=["t"], auto_offset_reset=reset) as consumer:
        assert len(drain(consumer)) == expected
        fill(shop, range(10, 13))
        assert len(drain(consumer)) == 6


def test_without_a_reset_policy_a_missing_position_is_an_error(shop: kmq.Store):
    with (
        shop.consumer("g", topics=["t"], auto_offset_reset="none") as consumer,
        pytest.raises(kmq.OffsetOutOfRangeError, match="seek"),
    ):
        consumer.poll(0)
    shop.set_group_offsets("g", {"t": {0: 3, 1: 4}})
    with shop.consumer("g", topics=["t"], auto_offset_reset="none") as consumer:
        assert numbers(drain(consumer)) == {0: list(range(3, 10)), 1: list(range(4, 10))}


@pytest.mark.parametrize("group", [None, "g"])
def test_without_a_reset_policy_a_seek_says_where_to_begin(shop: kmq.Store, group: str | None):
    with shop.consumer(group, topics=["t"], auto_offset_reset="none") as consumer:
        assert consumer.assignment() == {"t": [0, 1]}
        assert consumer.position() == consumer.lag() == {}
        consumer.seek("t", 0, 7)
        assert consumer.position() == {"t": {0: 7}}
        consumer.pause({"t": [1]})
        assert numbers(drain(consumer)) == {0: [7, 8, 9]}
        if group is not None:
            consumer.commit()
            assert shop.describe_group("g").committed == {"t": {0: 10}}
        consumer.resume()
        with pytest.raises(kmq.OffsetOutOfRangeError, match="t-1"):
            consumer.poll(0)
        consumer.seek_to_beginning({"t": [1]})
        assert numbers(drain(consumer)) == {1: list(range(10))}


@pytest.mark.parametrize("wrong", ["x", -1, True, [1]])
def test_a_wrong_timeout_is_refused_also_when_a_record_is_at_hand(shop: kmq.Store, wrong: Any):
    with shop.consumer(topics=["t"]) as consumer:
        consumer.poll()
        with pytest.raises(kmq.InvalidRequestError, match="timeout"):
            consumer.poll(wrong)
        assert len(drain(consumer)) == 19


def test_a_consumer_that_reads_nothing_hands_out_nothing(shop: kmq.Store):
    with shop.consumer() as consumer:
        assert consumer.assignment() == {}
        assert consumer.poll() is None
        assert consumer.consume(timeout=0.05) == []
        assert consumer.position() == consumer.lag() == {}
        consumer.subscribe(["t"])
        consumer.poll()
        consumer.unsubscribe()
        assert consumer.poll() is None
        assert consumer.assignment() == {}
