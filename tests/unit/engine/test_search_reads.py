"""What a search reads of a bucket: counted in requests and bytes, so that what it leaves out shows.

Finds: values that are fetched to look at keys, batches without any key, and searches that go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import kmq_spark as kmq
from tests.support.counting_bucket import Asked, CountingBucket

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SEGMENTS = 6
ROWS = 40
#: A batch has 6 MB of values: its columns are too far apart to be fetched together.
VALUE = bytes(150_000)
#: Less than this is not asked for at a time (`objects.read_cache`).
LEAST = 1 << 20


def _batch(number: int, *, keys: bool = True) -> pa.Table:
    """Records with the keys `<number>-0` and so on, all of the minute of that number."""
    kind = pa.timestamp("us", "UTC")
    columns = {
        "value": pa.array([VALUE] * ROWS),
        "timestamp": pa.array([T0 + timedelta(minutes=number)] * ROWS, kind),
    }
    if keys:
        columns["key"] = pa.array([b"%d-%d" % (number, row) for row in range(ROWS)])
    return pa.table(columns)


@pytest.fixture(scope="module")
def bucket() -> CountingBucket:
    """Each partition of topic `t` has half of the segments; topic `plain` is not sealed.

    All batches of topic `one` stand in one segment.
    """
    bucket = CountingBucket("memory-bucket://searched")
    with bucket.store() as store:
        for name, partitions in (("t", 2), ("one", 1), ("plain", 1)):
            store.create_topic(name, partitions=partitions)
        with store.producer() as producer:
            for number in range(SEGMENTS):
                producer.send_arrow("one", _batch(number % (SEGMENTS - 1))).result(60)
            for number in range(SEGMENTS):
                producer.send_arrow("t", _batch(number), partition=number % 2).result(60)
                store.seal()
            producer.send_arrow("plain", _batch(0, keys=False)).result(60)
            producer.send_arrow("plain", _batch(1)).result(60)
    return bucket


@pytest.fixture
def store(bucket: CountingBucket) -> Iterator[kmq.Store]:
    """A handle that has read nothing yet."""
    with bucket.store() as store:
        store.topics()
        bucket.asked.clear()
        yield store


def _bytes(asked: list[Asked]) -> int:
    return sum(each.answered for each in asked)


def _files(asked: list[Asked]) -> int:
    return len({each.name for each in asked})


def test_values_are_fetched_of_the_batch_with_the_hit_alone(
    bucket: CountingBucket, store: kmq.Store
):
    assert store.find("t", key=b"3-7")["value"].to_pylist() == [VALUE]
    read = bucket.below("segments")
    assert _files(read) == SEGMENTS  # each may have the key
    assert _bytes(read) < ROWS * len(VALUE) + (SEGMENTS + 1) * LEAST


def test_batches_between_two_hits_are_not_fetched(bucket: CountingBucket, store: kmq.Store):
    found = store.find("one", key=b"0-3")
    assert found["offset"].to_pylist() == [3, (SEGMENTS - 1) * ROWS + 3]
    read = bucket.below("segments")
    assert _files(read) == 1
    # Sealed, they are three batches: that in the middle is not wanted.
    assert _bytes(read) < 0.75 * SEGMENTS * ROWS * len(VALUE)


def test_a_key_that_nobody_has_fetches_no_value(bucket: CountingBucket, store: kmq.Store):
    assert store.find("t", key=b"nobody").num_rows == 0
    assert _bytes(bucket.below("segments")) < (SEGMENTS + 1) * LEAST


def test_segments_outside_of_a_time_are_not_touched(bucket: CountingBucket, store: kmq.Store):
    since, until = T0 + timedelta(minutes=2), T0 + timedelta(minutes=4)
    found = store.find("t", key=b"2-0", start=since, end=until)
    assert found["offset"].to_pylist() == [ROWS]
    # Those of minutes 2 and 3, and of 4 and 5, in which the end is looked up.
    assert _files(bucket.below("segments")) <= 4


def test_a_search_ends_with_the_last_that_is_wanted(bucket: CountingBucket, store: kmq.Store):
    assert store.find("t", key=b"0-0", limit=1)["partition"].to_pylist() == [0]
    assert _files(bucket.below("segments")) <= SEGMENTS // 2  # partition 1 is not looked at


def test_a_batch_of_the_commit_log_without_any_key_is_not_read(
    bucket: CountingBucket, store: kmq.Store
):
    assert store.find("plain", key=b"1-0")["offset"].to_pylist() == [ROWS]
    assert _files(bucket.below("staged")) == 1
    bucket.asked.clear()
    assert store.find("plain", properties={"p": 1}).num_rows == 0
    assert bucket.below("staged") == []


@pytest.mark.parametrize(("minute", "expected"), [(3.5, {0: ROWS * 2, 1: ROWS * 2}), (7, None)])
def test_an_instant_is_looked_up_in_the_one_segment_that_can_have_it(
    store: kmq.Store, bucket: CountingBucket, minute: float, expected: dict[int, int] | None
):
    found = store.offsets_for_time("t", T0 + timedelta(minutes=minute))
    assert found == (expected or {0: None, 1: None})
    segments = bucket.below("segments")
    assert len({each.name for each in segments}) == (2 if expected else 0)
    assert _bytes(segments) < 2 * 3 * LEAST  # of each partition footer and instants, of 6 MB
