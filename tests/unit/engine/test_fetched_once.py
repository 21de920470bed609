"""Reading a bucket from end to end fetches each byte once. Finds what was fetched ahead and dropped
before it was used, heads of files that nobody needs, and readers that keep room for nothing."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from kmq_storage.format.packing import HEAD_BYTES_MAX, PARTS_BYTES_MAX
from kmq_storage.limits import STAGED_BATCH_BYTES
from kmq_storage.objects.bucket_files import CACHE_BYTES
from kmq_storage.objects.read_cache import HEAD_BYTES, ReadCache
from tests.support.counting_bucket import CountingBucket

FILES = 14
FILE_BYTES = 8_000_000
VALUES = pa.array([bytes([n]) * 1_000_000 for n in range(8)])
CACHE_SIZES = pytest.mark.parametrize(
    "cache_bytes", [CACHE_BYTES, 20_000_000, 2_000_000], ids=["default", "small", "tiny"]
)


@pytest.fixture(scope="module")
def bucket() -> CountingBucket:
    """Two topics that don't fit into a cache, one of them sealed."""
    bucket = CountingBucket("memory-bucket://once")
    with bucket.store() as store:
        for topic in ("sealed", "staged"):
            store.create_topic(topic, partitions=2)
            for n in range(FILES):
                numbers = pa.array([n % 2] * len(VALUES), pa.int32())
                rows = pa.table({"value": VALUES, "partition": numbers})
                with store.producer() as producer:
                    producer.send_arrow(topic, rows).result(60)
            if topic == "sealed":
                assert store.seal().segments == 2
    return bucket


@CACHE_SIZES
@pytest.mark.parametrize(("topic", "folder"), [("sealed", "segments"), ("staged", "staged")])
def test_a_read_from_end_to_end_fetches_each_byte_about_once(
    bucket: CountingBucket, topic: str, folder: str, cache_bytes: int
):
    with bucket.store(cache_bytes) as store:
        store.topics()
        bucket.asked.clear()
        read = sum(batch.num_rows for batch in store.read(topic, columns=["value"]))
    assert read == FILES * len(VALUES)
    fetched = sum(each.answered for each in bucket.below(folder))
    assert FILES * FILE_BYTES < fetched < 1.02 * FILES * FILE_BYTES


def test_two_readers_of_one_store_don_t_take_each_other_s_room(bucket: CountingBucket):
    with bucket.store() as store:
        store.topics()
        bucket.asked.clear()
        readers = [store.read("staged", partitions=[n]) for n in range(2)]
        for _ in zip(*readers, strict=True):
            pass
    fetched = sum(each.answered for each in bucket.below("staged"))
    assert fetched < 1.02 * FILES * FILE_BYTES


@pytest.fixture(scope="module")
def wide() -> pa.Table:
    """20 columns, no two the same."""
    rows = range(800)
    return pa.table({f"c{n}": [bytes([n, row % 200]) * 2_000 for row in rows] for n in range(20)})


@pytest.fixture
def wide_bucket(wide: pa.Table) -> CountingBucket:
    """The table in a typed topic, not sealed."""
    bucket = CountingBucket("memory-bucket://wide")
    with bucket.store() as store, store.producer() as producer:
        store.create_topic("wide", schema=wide.schema)
        producer.send_arrow("wide", wide).result(60)
    return bucket


def _fetched(bucket: CountingBucket, wide: pa.Table, columns: list[str], folder: str) -> int:
    """The bytes that a read of these columns fetched from a folder."""
    with bucket.store() as store:
        store.topics()
        bucket.asked.clear()
        found = store.read("wide", columns=columns).read_all()
    assert found.select(columns).equals(wide.select(columns))
    return sum(each.answered for each in bucket.below(folder))


def test_a_column_costs_its_own_bytes_before_and_after_it_is_sealed(
    wide: pa.Table, wide_bucket: CountingBucket
):
    before = _fetched(wide_bucket, wide, ["c7"], "staged")
    with wide_bucket.store() as store:
        store.seal()
    after = _fetched(wide_bucket, wide, ["c7"], "segments")
    # The first MiB of a file comes with what is looked at there.
    column = wide["c7"].nbytes + HEAD_BYTES
    assert after < 1.02 * column
    batches = wide.nbytes / STAGED_BATCH_BYTES + 1
    assert before < 1.02 * column + batches * (HEAD_BYTES_MAX + PARTS_BYTES_MAX)


def test_all_columns_cost_each_byte_once_before_they_are_sealed(
    wide: pa.Table, wide_bucket: CountingBucket
):
    assert _fetched(wide_bucket, wide, wide.column_names, "staged") < 1.03 * wide.nbytes


def test_a_short_batch_that_is_not_sealed_is_fetched_once():
    bucket = CountingBucket("memory-bucket://short")
    table = pa.table({"a": [b"x" * 4_000] * 60, "b": [b"y" * 1_000] * 60})
    with bucket.store() as store, store.producer() as producer:
        store.create_topic("wide", schema=table.schema)
        producer.send_arrow("wide", table).result(60)
    assert _fetched(bucket, table, ["b"], "log") < 1.1 * table.nbytes


def test_one_record_by_its_offset_is_one_request_for_its_batch(bucket: CountingBucket):
    with bucket.store() as store:
        store.topics()
        bucket.asked.clear()
        one = store.read("staged", partitions=[0], start={0: 9}, end={0: 10}).read_all()
    assert one["value"].to_pylist() == [VALUES[1].as_py()]
    assert len(bucket.below("staged")) == 1


def test_what_a_reader_left_behind_gives_room_to_others():
    bucket = CountingBucket("memory-bucket://left")
    for n in range(60):
        bucket.objects[f"staged/{n}"] = bytes(4 * HEAD_BYTES)
    cache = ReadCache(bucket, 20 * HEAD_BYTES, None)
    part = (HEAD_BYTES, 2 * HEAD_BYTES)
    for n in range(60):  # and nobody comes for them
        cache.fetch_ahead(f"staged/{n}", *part)
    for _ in range(2_000):
        cache.part("staged/0", 0, 1)
    cache.fetch_ahead("staged/59", *part)
    while not _times(bucket, "staged/59"):  # it comes though nobody asks for it yet
        time.sleep(0.001)
    assert cache.part("staged/59", *part).size == 2 * HEAD_BYTES
    cache.close()
    assert _times(bucket, "staged/59") == 1
    assert cache.held_bytes <= 20 * HEAD_BYTES


def _times(bucket: CountingBucket, name: str) -> int:
    return sum(each.name == name for each in bucket.asked)
