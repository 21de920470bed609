"""Consumers and reads over everything a partition can be made of at once.

Trimmed, compacted, sealed with and without compression, merged, staged, in the log, some of it in
pages of a checkpoint and some only in memory: readers see offsets, instants and contents as ever.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark import aio
from kmq_spark.client.store import Store
from kmq_spark.errors import IllegalStateError, OffsetOutOfRangeError
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.reading.scan import scan
from kmq_storage.maintenance.compact import compact_keys, merge, plan_merges
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.model import Chunk, Place
from kmq_storage.objects.files import Files
from tests.support.engine import Sent, open_engine, rows_of, send_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The offsets that are left of topic `t`, partition 0.
LEFT = [*range(7, 20), *range(20, 40, 2), *range(40, 70)]


def _row(offset: int) -> Sent:
    key = b"old" if 20 <= offset < 40 and offset % 2 else b"%d" % offset
    return Sent(key, b"value %d" % offset, offset)


def _send(store: Store, start: int, end: int, *, staged: bool = False) -> None:
    send_rows(store.log, "t", [_row(n) for n in range(start, end)], staged=staged)


@pytest.fixture
def store(store: kmq.Store) -> kmq.Store:
    """A store in a folder or in memory whose topic has parts of every kind."""
    store.create_topic("t", partitions=2, cleanup="compact", compression="lz4")
    log = store.log
    _send(store, 0, 10)
    _send(store, 10, 20, staged=True)
    seal(log, plan_seal(log.refresh(), segment_bytes=200))
    store.checkpoint()
    _send(store, 20, 40)
    send_rows(log, "t", [Sent(b"old", b"elsewhere")], partition=1)
    store.alter_topic("t", compression=None)
    seal(log, plan_seal(log.refresh()))
    _send(store, 40, 50)
    _compact_all_but_the_last_of(store)
    store.checkpoint()
    store.trim("t", {0: 7})
    seal(log, plan_seal(log.refresh()))
    _send(store, 50, 60, staged=True)
    _send(store, 60, 70)
    return store


def _compact_all_but_the_last_of(store: kmq.Store) -> None:
    """Key `old` stands at the odd offsets from 21 to 39: a newer one supersedes all of them."""
    state = store.log.refresh()
    topic = state.topic("t")
    compact_keys(store.log, topic, state.lsn, segment_bytes=300)


def _offsets_left(store: kmq.Store) -> list[int]:
    found = rows_of(store, "t")
    assert all(found[at] == _row(at) for at in found)
    return list(found)


#: The newest record of key `old` stays.
EXPECTED = sorted([*LEFT, 39])


def test_read_gives_what_is_left_in_order(store: kmq.Store):
    assert _offsets_left(store) == EXPECTED


@pytest.mark.parametrize("batch_rows", [1, 3, 7, 1000])
def test_read_begins_and_ends_anywhere(store: kmq.Store, batch_rows: int):
    for start in range(7, 71):
        for end in (start, start + 1, start + 9, 70, 99):
            reader = store.read(
                "t", partitions=[0], start={0: start}, end={0: end}, batch_rows=batch_rows
            )
            batches = list(reader)
            assert all(0 < batch.num_rows <= batch_rows for batch in batches)
            found = [at for batch in batches for at in batch.column("offset").to_pylist()]
            assert found == [at for at in EXPECTED if start <= at < end]


def test_a_consumer_polls_every_record_once(store: kmq.Store):
    with store.consumer("g", topics=["t"]) as consumer:
        found = []
        while (record := consumer.poll()) is not None:
            found.append((record.partition, record.offset, record.key, record.value))
        expected = [(0, at, _row(at).key, _row(at).value) for at in EXPECTED]
        assert sorted(found) == [*expected, (1, 0, b"old", b"elsewhere")]
        assert consumer.position() == {"t": {0: 70, 1: 1}}
        consumer.commit()
    assert store.describe_group("g").lag == {"t": {0: 0, 1: 0}}


def test_consume_arrow_and_consume_agree(store: kmq.Store):
    with store.consumer(topics=["t"]) as one, store.consumer(topics=["t"]) as other:
        table = one.consume_arrow(1_000, timeout=0)
        assert table is not None
        while (more := one.consume_arrow(1_000, timeout=0)) is not None:
            table = pa.concat_tables([table, more])
        records = other.consume(1_000, timeout=0)
        names = ("partition", "offset", "value")
        rows = zip(*(table[name].to_pylist() for name in names), strict=True)
        assert sorted(rows) == sorted((r.partition, r.offset, r.value) for r in records)


def test_seek_goes_anywhere_also_where_compaction_left_nothing(store: kmq.Store):
    with store.consumer() as consumer:
        consumer.assign({"t": [0]})
        for offset in (69, 7, 21, 38, 39, 45, 20, 70):
            consumer.seek("t", 0, offset)
            record = consumer.poll()
            expected = next((at for at in EXPECTED if at >= offset), None)
            assert (record and record.offset) == expected
        with pytest.raises(OffsetOutOfRangeError):
            consumer.seek("t", 0, 6)


def test_instants_are_found_in_every_part(store: kmq.Store):
    for offset in range(75):
        when = EPOCH + timedelta(microseconds=offset)
        expected = next((at for at in EXPECTED if at >= offset), None)
        assert store.offsets_for_time("t", when)[0] == expected
        found = rows_of_since(store, when)
        assert found == [at for at in EXPECTED if expected is not None and at >= expected]


def rows_of_since(store: kmq.Store, when: datetime) -> list[int]:
    reader = store.read("t", partitions=[0], start=when)
    return list(reader.read_all()["offset"].to_pylist())


def test_an_offset_below_the_start_is_an_error_with_the_range_inside(store: kmq.Store):
    with pytest.raises(OffsetOutOfRangeError, match="which holds 7 to 70"):
        store.read("t", start={0: 6})
    with pytest.raises(OffsetOutOfRangeError):
        store.set_group_offsets("g", {"t": {0: 6}})


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 30), ("latest", None)])
def test_a_group_below_the_start_goes_on_by_its_reset(
    store: kmq.Store, reset: str, expected: int | None
):
    store.set_group_offsets("g", {"t": {0: 10, 1: 1}})
    store.trim("t", {0: 30})
    with store.consumer("g", topics=["t"], auto_offset_reset=reset) as consumer:
        record = consumer.poll()
        assert (record and record.offset) == expected


def test_without_a_reset_a_group_below_the_start_is_an_error(store: kmq.Store):
    store.set_group_offsets("g", {"t": {0: 10, 1: 1}})
    store.trim("t", {0: 30})
    with (
        store.consumer("g", topics=["t"], auto_offset_reset="none") as consumer,
        pytest.raises(OffsetOutOfRangeError, match="which holds 30 to 70"),
    ):
        consumer.poll()


def test_a_trim_under_a_consumer_moves_it_by_its_reset(store: kmq.Store):
    with store.consumer(topics=["t"]) as consumer:
        assert consumer.consume(3, timeout=0)
        store.trim("t", {0: 50})
        found = [r.offset for r in consumer.consume(1_000, timeout=0) if r.partition == 0]
        assert found[-20:] == list(range(50, 70))


def test_lag_counts_offsets_and_bytes_from_where_the_group_is(store: kmq.Store):
    store.set_group_offsets("g", {"t": {0: 60, 1: 0}})
    group = store.describe_group("g")
    assert group.lag["t"] == {0: 10, 1: 1}
    assert group.lag_bytes["t"][0] == sum(
        len(_row(n).key or b"") + len(_row(n).value or b"") for n in range(60, 70)
    )


def test_a_read_only_handle_reads_it_and_maintains_nothing(store: kmq.Store):
    with kmq.open(store.url, read_only=True) as reader:
        assert _offsets_left(reader) == EXPECTED
        for call in (
            reader.seal,
            reader.checkpoint,
            reader.maintain,
            lambda: reader.collect(grace=0),
        ):
            with pytest.raises(IllegalStateError):
                call()
        assert _offsets_left(reader) == EXPECTED


def test_maintaining_twice_finds_nothing_more_to_do(store: kmq.Store):
    before = _offsets_left(store)
    store.seal()
    store.compact("t")
    store.maintain(grace=0)
    second = store.maintain(grace=0)
    assert (second.sealed.segments, second.compacted.after, second.trimmed.starts) == (0, 0, {})
    assert (second.collected.files, second.checkpoint.pages) == (0, 0)
    assert set(_offsets_left(store)) <= set(before)


def test_offsets_timestamps_and_contents_never_change(store: kmq.Store):
    before = store.read("t").read_all()
    store.seal()
    state = store.log.refresh()
    merge(store.log, plan_merges(state.topic("t"), state.lsn, now=0))
    store.checkpoint()
    store.collect(grace=0)
    assert store.read("t").read_all() == before


def test_the_asyncio_twin_does_the_same(store_url: str):
    import asyncio

    async def work() -> None:
        async with aio.open(store_url) as store:
            await store.create_topic("t", cleanup="compact")
            async with store.producer() as producer:
                for n in range(4):
                    await producer.send("t", b"%d" % n, key=b"%d" % (n % 2))
            assert (await store.seal()).rows == 4
            assert (await store.checkpoint()).pages == 1
            assert (await store.compact("t")).dropped == 2
            assert (await store.trim("t", {0: 3})).starts == {"t": {0: 3}}
            assert (await store.collect()).files == 0
            assert (await store.maintain(grace=0)).checkpoint.lsn
            batches = [batch async for batch in store.read("t", columns=["offset"])]
            assert pa.Table.from_batches(batches)["offset"].to_pylist() == [3]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_scan_of_a_span_of_one_part_reads_that_part_only():
    store = open_engine()
    store.create_topic("t")
    for start in range(0, 30, 10):
        _send(store, start, start + 10)
        store.seal()
    topic, reader = store.log.refresh().topic("t"), _CountingReader(store.log.files)
    parts = list(scan(store.log, reader, topic, 0, (12, 14), batch_rows=100))
    assert [(part.offset, part.end, part.batch.num_rows) for part in parts] == [(12, 14, 2)]
    assert len(reader.files) == 1


class _CountingReader(ChunkReader):
    def __init__(self, disk: Files) -> None:
        super().__init__(disk)
        self.files: set[str] = set()

    def chunks(self, place: Place, topic: str, partition: int) -> tuple[Chunk, ...]:
        self.files.add(place.location.file)
        return super().chunks(place, topic, partition)
