"""`Store.find`: what is a hit, in which order and columns, and what it refuses.

Finds: values of another type taken for equal, records from before and after sealing that differ,
bounds that `read` understands otherwise, and errors that come too early or not at all.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.client.finding import found
from kmq_storage.errors import CorruptionError
from kmq_storage.format.matching import WantedRecords
from tests.support.damage import flip_in_the_middle
from tests.unit.client.typed import ADDED

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["unsealed", "sealed"])
def shop(request: pytest.FixtureRequest, store: kmq.Store) -> kmq.Store:
    """Six records, a second apart, in two partitions: 0, 2, 4 in the first, 1, 3, 5 in the other.

    The key is `a` for 0 to 3, `b` for 4, none for 5; some have properties or headers.
    """
    store.create_topic("t", partitions=2)
    extras: dict[int, dict[str, Any]] = {
        0: {"properties": {"n": 1, "word": "x"}},
        1: {"properties": {"n": 1.0}},
        2: {"headers": [("MessageId", b"m2"), ("MessageId", b"again")]},
        3: {"properties": {"n": True}, "headers": {"MessageId": None}},
        4: {"properties": {"n": "1", "raw": b"1"}},
    }
    with store.producer() as producer:
        for number in range(6):
            key = b"a" if number < 4 else b"b" if number == 4 else None
            when = T0 + timedelta(seconds=number)
            producer.send(
                "t", b"%d" % number, key, partition=number % 2, timestamp=when,
                **extras.get(number, {}),
            )  # fmt: skip
    if request.param == "sealed":
        store.seal()
    return store


def _values(table: pa.Table) -> list[int]:
    return [int(value) for value in table["value"].to_pylist()]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, [0, 2, 4, 1, 3, 5]),
        ({"key": b"a"}, [0, 2, 1, 3]),
        ({"key": "b"}, [4]),
        ({"key": b""}, []),
        ({"properties": {}}, [0, 2, 4, 1, 3, 5]),
        ({"properties": {"n": 1}}, [0]),
        ({"properties": {"n": 1.0}}, [1]),
        ({"properties": {"n": True}}, [3]),
        ({"properties": {"n": "1"}}, [4]),
        ({"properties": {"raw": b"1"}}, [4]),
        ({"properties": {"n": 1, "word": "x"}}, [0]),
        ({"properties": {"n": 1, "word": "y"}}, []),
        ({"properties": {"m": 1}}, []),
        ({"headers": {"MessageId": "m2"}}, [2]),
        ({"headers": [("MessageId", b"m2"), ("MessageId", b"again")]}, [2]),
        ({"headers": {"MessageId": None}}, [3]),
        ({"headers": {"messageid": "m2"}}, []),
        ({"key": b"a", "properties": {"n": 1}}, [0]),
        ({"key": b"b", "properties": {"n": 1}}, []),
        ({"key": b"a", "start": {0: 1}}, [2, 1, 3]),
        ({"key": b"a", "end": {1: 1}}, [0, 2, 1]),
        ({"key": b"a", "start": T0 + timedelta(seconds=2)}, [2, 3]),
        ({"start": T0 + timedelta(seconds=1), "end": T0 + timedelta(seconds=4)}, [2, 1, 3]),
        ({"key": b"a", "limit": 1}, [0]),
        ({"key": b"a", "limit": 3}, [0, 2, 1]),
        ({"limit": 4}, [0, 2, 4, 1]),
    ],
)
def test_what_is_a_hit(shop: kmq.Store, asked: dict[str, Any], found: list[int]):
    assert _values(shop.find("t", **asked)) == found


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_a_time_means_each_records_own_wherever_it_stands(
    store: kmq.Store, sealed: bool, typed: bool
):
    hours = [5, 1, 3, 9, 2, 7, 0, 4]
    schema = pa.schema([("hour", pa.int64())]) if typed else None
    store.create_topic("t", schema=schema)
    store.create_topic("u", schema=schema)
    with store.producer() as producer:
        for n, hour in enumerate(hours):
            value: Any = {"hour": hour} if typed else b"%d" % hour
            producer.send("t", value, key=b"k", timestamp=T0 + timedelta(hours=hour)).result()
            if sealed and n % 3 == 2:
                store.seal()

    def hours_in(table: pa.Table) -> list[int]:
        return table["hour"].to_pylist() if typed else _values(table)

    for since, until in product([None, *range(11)], repeat=2):
        start, end = (
            None if each is None else T0 + timedelta(hours=each) for each in (since, until)
        )
        low, high = 0 if since is None else since, 99 if until is None else until
        wanted = [hour for hour in hours if low <= hour < high]
        assert hours_in(store.find("t", start=start, end=end)) == wanted
        assert hours_in(store.find("t", key=b"k", start=start, end=end)) == wanted
    between = {"start": T0 + timedelta(hours=2), "end": T0 + timedelta(hours=5)}
    assert store.replay("t", "u", **between) == 3
    assert hours_in(store.read("u").read_all()) == [3, 2, 4]
    assert hours_in(store.find("t", start={0: 3}, end=between["end"], limit=2)) == [2, 0]


def test_a_hit_has_every_column_that_read_gives(shop: kmq.Store):
    whole = shop.read("t", start={0: 1}, end={0: 2, 1: 0}).read_all()
    found = shop.find("t", headers={"MessageId": b"m2"})
    assert found.schema == whole.schema
    assert found.to_pylist() == whole.to_pylist()


def test_an_empty_topic_has_the_columns_too(store: kmq.Store):
    store.create_topic("empty")
    assert store.find("empty", key=b"a").schema == store.read("empty").schema


def test_at_most_a_hundred_are_found_unless_more_are_asked_for(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"v"] * 300, [b"a"] * 300)
    assert store.find("t", key=b"a").num_rows == 100
    assert store.find("t", key=b"a", limit=1_000).num_rows == 300


def test_records_before_and_after_sealing_come_together(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        for number in range(3):
            producer.send("t", b"%d" % number, b"a", properties={"n": number}).result(10)
            if number == 1:
                store.seal()
    assert _values(store.find("t", key=b"a")) == [0, 1, 2]
    assert [_values(store.find("t", properties={"n": n})) for n in range(3)] == [[0], [1], [2]]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_typed_topic_is_searched_by_its_key_headers_and_properties(
    store: kmq.Store, sealed: bool
):
    store.create_topic("t", schema=pa.schema([("n", pa.int64()), ("key", pa.string())]))
    with store.producer() as producer:
        for n in range(4):
            producer.send("t", {"n": n, "key": "own"}, b"a" if n % 2 else None)
        producer.send("t", None, b"a", properties={"p": 1}, headers={"h": b"x"})
    if sealed:
        store.seal()
    found = store.find("t", key="a")
    assert found.schema.names == ["n", "key", *ADDED]
    assert found["n"].to_pylist() == [1, 3, None]
    assert store.find("t", key="own").num_rows == 0
    assert store.find("t", properties={"p": 1})["_offset"].to_pylist() == [4]
    assert store.find("t", headers={"h": "x"})["_offset"].to_pylist() == [4]


def test_what_compaction_dropped_is_not_found(store: kmq.Store):
    store.create_topic("t", cleanup="compact")
    with store.producer() as producer:
        producer.send_batch("t", [b"0", b"1", b"2"], [b"a", b"b", b"a"])
    store.seal()
    store.compact("t")
    found = store.find("t", key=b"a")
    assert (found["offset"].to_pylist(), _values(found)) == ([2], [2])


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"key": 1}, "key"),
        ({"properties": {"n": None}}, "property n"),
        ({"properties": {"n": 2**63}}, "property n"),
        ({"properties": [("n", 1)]}, "properties"),
        ({"headers": {"h": 1}}, "header h"),
        ({"limit": 0}, "limit"),
        ({"limit": None}, "limit"),
        ({"start": datetime(2026, 1, 1)}, "start"),  # noqa: DTZ001 - a naive one is refused
        ({"end": 3}, "end"),
    ],
)
def test_what_no_record_can_have_is_refused(shop: kmq.Store, asked: dict[str, Any], named: str):
    with pytest.raises(kmq.InvalidRequestError, match=named):
        shop.find("t", **asked)


def test_topics_and_offsets_that_are_not_there_are_named(shop: kmq.Store):
    with pytest.raises(kmq.NotFoundError, match=r"Topic\[u\]"):
        shop.find("u", key=b"a")
    with pytest.raises(kmq.NotFoundError, match=r"Partition\[t-7\]"):
        shop.find("t", key=b"a", start={7: 0})
    shop.trim("t", {0: 1})
    with pytest.raises(kmq.OffsetOutOfRangeError, match="offset 0"):
        shop.find("t", key=b"a", start={0: 0})
    assert _values(shop.find("t", key=b"a")) == [2, 1, 3]


def test_damaged_records_are_an_error_when_the_search_comes_to_them(tmp_path: Path):
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        store.create_topic("t", partitions=2)
        for number in range(2):
            values, keys = [b"%d" % number] * 1_000, [b"a"] * 1_000
            producer.send_batch("t", values, keys, partition=number).result(10)
        store.seal()
        file = next((tmp_path / "store" / "segments").rglob("*/1/*.arrow"))
        flip_in_the_middle(file)
    with kmq.open(tmp_path / "store", read_only=True) as store:
        assert store.find("t", key=b"a", limit=1_000).num_rows == 1_000
        with pytest.raises(CorruptionError, match="t-1, offsets 0 to 999"):
            store.find("t", key=b"a", limit=1_001)


def test_the_asyncio_twin_finds_the_same(store_url: str):
    async def work() -> None:
        async with await aio.open(store_url) as store:
            await store.create_topic("t")
            async with store.producer() as producer:
                await producer.send("t", b"1", key=b"a")
                await producer.send("t", b"2", key=b"b")
            assert _values(await store.find("t", key=b"b")) == [2]
            await store.create_topic("u")
            assert await store.replay("t", "u", key=b"b") == 1
            assert [step.event for step in await store.trace("u", 0, 0)] == ["sent"]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_search_holds_one_batch_at_a_time(tmp_path: Path):
    rows, batches = 8, 16
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    with kmq.open(tmp_path / "store", maintenance=False) as store, store.producer() as producer:
        # Compressed: a batch is in memory that is counted, not in a mapped file.
        store.create_topic("t", compression="lz4", max_record_bytes=2 << 20)
        table = pa.table({"value": [bytes(1 << 20)] * rows, "key": [b"a", *[b"b"] * (rows - 1)]})
        for _ in range(batches):
            producer.send_arrow("t", table).result(60)
        store.seal()
        pa.set_memory_pool(pool)
        try:
            _, parts = found(store.log, "t", WantedRecords(b"a"), (None, None))
            offsets = [offset for part in parts for offset in part.offsets().tolist()]
        finally:
            pa.set_memory_pool(default)
    assert offsets == list(range(0, rows * batches, rows))  # every batch was read whole
    peak = pool.max_memory()
    assert peak is not None
    assert peak < 4 * rows << 20
