"""Finds batches beyond their limits, waits of wrong length, and partitions that starve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

from kmq_spark.datasource.streams.admission import BYTES_DEFAULT
from kmq_storage.environment import Environment
from tests.spark.shop import Shop
from tests.unit.datasource.engine import ALL, Crash, Stream

#: What one of the shop's records weighs: 2 bytes of key, up to 5 of value, 64 of Arrow.
RECORD = 70


@dataclass
class Clock:
    """Seconds that pass when they are told to."""

    seconds: float = 1_000.0

    def environment(self) -> Environment:
        """An environment that has this clock."""
        return Environment(monotonic=lambda: self.seconds, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


def _stream(shop: Shop, **options: str) -> Stream:
    return Stream(shop, startingOffsets="earliest", **options)


def _slow(shop: Shop, clock: Clock, **options: str) -> Stream:
    stream = _stream(shop, minOffsetsPerTrigger="15", maxTriggerDelay="5s", **options)
    stream.environment = clock.environment()
    return stream


def test_the_default_limit_is_one_of_bytes_and_gives_way_to_any_that_is_given(shop: Shop) -> None:
    assert _stream(shop).start().reader.getDefaultReadLimit() == ReadMaxBytes(BYTES_DEFAULT)
    records = _stream(shop, maxOffsetsPerTrigger="7", maxBytesPerTrigger="1k").start()
    assert records.reader.getDefaultReadLimit() == ReadMaxRows(7)
    sized = _stream(shop, maxBytesPerTrigger="1k").start()
    assert sized.reader.getDefaultReadLimit() == ReadMaxBytes(1024)


def test_a_first_start_from_earliest_takes_no_more_than_the_default(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmq_spark.datasource.stream_reader.BYTES_DEFAULT", 10 * (RECORD + 2))
    shop.send("orders", 0, 50)
    stream = _stream(shop)
    stream.start().all_available()
    assert max(stream.sizes) <= 11
    assert stream.sink.places == shop.places("orders")


def test_a_batch_of_bytes_is_shared_in_proportion_and_once_ignores_it(shop: Shop) -> None:
    shop.send("orders", 0, 100)
    shop.send("orders", 1, 50)
    shop.send("orders", 2, 1)
    stream = _stream(shop, maxBytesPerTrigger=str(30 * RECORD))
    query = stream.start()
    query.trigger()
    taken = [sum(place[1] == p for place in stream.sink.batches[0]) for p in range(3)]
    assert 25 <= sum(taken) <= 31
    assert taken[0] > 1.5 * taken[1] > taken[2] == 1
    query.all_available(ALL)
    assert stream.sizes[1:] == [151 - sum(taken)]


def test_a_record_larger_than_the_limit_goes_through_alone(shop: Shop) -> None:
    producer = shop.store.producer(linger=0)
    for size in (10, 100_000, 10):
        producer.send("orders", b"x" * size, partition=0).result(timeout=30)
    stream = _stream(shop, maxBytesPerTrigger="1k")
    stream.start().all_available()
    assert stream.sizes == [1, 1, 1]


def test_a_batch_is_full_where_light_records_stand_before_heavy_ones(shop: Shop) -> None:
    producer = shop.store.producer(linger=0)
    for _ in range(60):
        producer.send("orders", b"12345", partition=0).result(timeout=30)
    producer.send("orders", b"x" * 1_000_000, partition=0).result(timeout=30)
    stream = _stream(shop, maxBytesPerTrigger=str(40 * RECORD))
    stream.start().all_available()
    assert stream.sizes[0] == 40
    assert stream.sizes[-1] == 1
    assert sum(stream.sizes) == 61


def test_topics_share_a_batch_also_beside_empty_ones(shop: Shop) -> None:
    for topic in ("nothing", "other", "void"):
        shop.create(topic)
    shop.send("orders", 0, 60)
    shop.send("other", 0, 30)
    stream = _stream(
        shop, subscribe="nothing,orders,other,void", maxBytesPerTrigger=str(30 * RECORD)
    )
    stream.start().all_available()
    first = [place[0] for place in stream.sink.batches[0]]
    assert first.count("orders") > 1.5 * first.count("other") > 0
    assert sorted(stream.sink.places) == [*shop.places("orders"), *shop.places("other")]


def test_limits_hold_in_sealed_segments_too(shop: Shop) -> None:
    shop.send("orders", 0, 1_000)
    shop.store.seal()
    shop.store.checkpoint()
    stream = _stream(shop, maxBytesPerTrigger=str(100 * (RECORD + 2)))
    stream.start().all_available()
    assert max(stream.sizes) <= 104
    assert len(stream.sizes) <= 12
    assert stream.sink.places == shop.places("orders")


def test_a_batch_waits_for_enough_records_but_not_for_ever(shop: Shop) -> None:
    clock = Clock()
    stream = _slow(shop, clock)
    query = stream.start()
    shop.send("orders", 0, 6)
    assert query.trigger(), "the first batch of a run does not wait"
    shop.send("orders", 1, 6)
    assert not query.trigger()
    shop.send("orders", 0, 12)
    assert query.trigger()
    assert stream.sizes == [6, 18]
    shop.send("orders", 2, 10)
    clock.sleep(4.9)
    assert not query.trigger()
    clock.sleep(0.1)
    assert query.trigger()
    assert stream.sizes == [6, 18, 10]
    assert not query.trigger()


@pytest.mark.parametrize("delay", ["0s", "0"])
def test_a_delay_of_nothing_waits_for_nobody(shop: Shop, delay: str) -> None:
    stream = _slow(shop, Clock())
    query = stream.start(maxTriggerDelay=delay)
    for partition in range(3):
        shop.send("orders", partition, 1)
        assert query.trigger()
    assert stream.sizes == [1, 1, 1]


def test_a_restart_does_not_wait_and_an_available_now_run_reaches_its_end(shop: Shop) -> None:
    stream = _slow(shop, Clock(), maxOffsetsPerTrigger="15")
    shop.send("orders", 0, 40)
    stream.start(available_now=True).all_available()
    assert stream.sizes == [15, 15, 10]
    shop.send("orders", 0, 2)
    stream.start().all_available()
    assert stream.sizes == [15, 15, 10, 2]


def test_least_and_most_hold_together_and_once_ignores_both(shop: Shop) -> None:
    clock = Clock()
    stream = _slow(shop, clock, maxOffsetsPerTrigger="20")
    shop.send("orders", 0, 101)
    shop.send("orders", 1, 11)
    query = stream.start()
    query.trigger()
    query.trigger()
    assert stream.sizes == [20, 20]
    query.all_available(ALL)
    assert stream.sizes == [20, 20, 72]
    shop.send("orders", 0, 3)
    assert query.trigger(), "one batch takes what is there"


def test_one_of_two_sources_without_news_keeps_its_offset(shop: Shop) -> None:
    shop.send("orders", 0, 10)
    query = _stream(shop, maxOffsetsPerTrigger="5").start()
    query.all_available()
    start = query.reader.latestOffset(query.reader.initialOffset(), ALL)
    assert query.reader.latestOffset(start, ALL) == start
    assert list(query.reader.latestOffset(start, ALL)) == list(start)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 9)),
        st.tuples(st.just("trigger"), st.sampled_from([None, None, *Crash])),
        st.tuples(st.just("restart"), st.sampled_from([None, "1", "4"]), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 6.0])),
        st.tuples(st.just("grow")),
        st.tuples(st.just("seal")),
    ),
    max_size=20,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions, st.sampled_from([None, "3"]), st.sampled_from([None, "1b", "300b", "1k"]))
def test_any_limits_changed_at_any_time_lose_and_repeat_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[Any, ...]],
    records: str | None,
    size: str | None,
) -> None:
    shop, clock = Shop(tmp_path_factory.mktemp("any") / "shop"), Clock()
    shop.create("orders", 1)
    stream = _stream(shop, group="g", minOffsetsPerTrigger="2", maxTriggerDelay="5s")
    stream.options |= {"maxOffsetsPerTrigger": records} if records else {}
    stream.options |= {"maxBytesPerTrigger": size} if size else {}
    stream.environment = clock.environment()
    query = stream.start()
    for action, *arguments in steps:
        if action == "send":
            shop.send("orders", arguments[0] % shop.partitions("orders"), arguments[1])
        elif action == "grow":
            shop.grow("orders", shop.partitions("orders") + 1)
        elif action == "seal":
            shop.store.seal()
        elif action == "wait":
            clock.sleep(arguments[0])
        elif action == "trigger":
            query.trigger(arguments[0])
            query = query if arguments[0] is None else stream.start()
        else:
            stream.options |= {"maxOffsetsPerTrigger": arguments[0]} if arguments[0] else {}
            stream.options["minOffsetsPerTrigger"] = "1"
            query = stream.start(available_now=arguments[1])
    stream.start(available_now=True).all_available()
    assert sorted(stream.sink.places) == shop.places("orders")
    committed = shop.committed("g", "orders")
    assert all(committed.get(p, 0) == end for p, (_, end) in shop.store.offsets("orders").items())
    stream.stop()
