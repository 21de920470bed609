"""Damaged commits of a bucket: named, passed over where that is safe, never cut.

Finds damage that is skipped in silence, and a writer that goes on behind what it can't read.
"""

from __future__ import annotations

import pytest

from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.errors import CorruptionError
from kmq_storage.format.identity import BucketFacts, Identity
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.objects.bucket_files import BucketFiles
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import make_topic, send, values_of

IDENTITY = Identity(SYSTEM.new_uuid(), bucket=BucketFacts("", True, ()))


def _open(bucket: MemoryBucket) -> BucketLog:
    return BucketLog(BucketFiles(bucket), IDENTITY, SYSTEM)


@pytest.fixture
def bucket() -> MemoryBucket:
    made = MemoryBucket("memory-bucket://damaged")
    log = _open(made)
    make_topic(log)
    for n in range(4):
        send(log, b"%d" % n)
    return made


def _flip(bucket: MemoryBucket, lsn: int, position: int) -> None:
    name = paths.commit_object(lsn)
    body = bytearray(bucket.objects[name])
    body[position] ^= 1
    bucket.objects[name] = bytes(body)


@pytest.mark.parametrize("position", [0, 8, 40, 124, 130])
def test_a_damaged_commit_is_named_and_those_behind_it_are_read(
    bucket: MemoryBucket, position: int
):
    _flip(bucket, 3, position)
    log = _open(bucket)
    state = log.refresh()
    assert [(each.first_lsn, each.last_lsn) for each in state.damage] == [(3, 3)]
    assert state.damage[0].file == paths.commit_object(3)
    assert state.topic("t").partition(0).end == 4
    with pytest.raises(CorruptionError, match=r"offsets 1 to 1 .*0003\.kmq"):
        values_of(log)


def test_nothing_is_written_behind_a_last_commit_that_is_damaged(bucket: MemoryBucket):
    _flip(bucket, 5, 8)
    log = _open(bucket)
    with pytest.raises(CorruptionError, match=r"0005\.kmq"):
        send(log, b"x")
    assert paths.commit_object(6) not in bucket.objects


def test_a_cut_object_is_damage(bucket: MemoryBucket):
    name = paths.commit_object(5)
    bucket.objects[name] = bucket.objects[name][:-64]
    assert _open(bucket).refresh().broken is not None


def test_a_commit_of_another_history_does_not_follow(bucket: MemoryBucket):
    other = MemoryBucket("memory-bucket://other")
    log = _open(other)
    make_topic(log)
    for n in range(4):
        send(log, b"other %d" % n)
    name = paths.commit_object(4)
    bucket.objects[name] = other.objects[name]
    state = _open(bucket).refresh()
    assert "does not follow" in state.damage[0].reason
    assert state.damage[0].first_lsn == 4


def test_a_damaged_batch_is_an_error_that_names_its_object_and_offsets(bucket: MemoryBucket):
    name = paths.commit_object(4)
    _flip(bucket, 4, bucket.objects[name].rindex(b"2"))
    with pytest.raises(CorruptionError, match=r"offsets 2 to 2: .*0004\.kmq, at") as raised:
        values_of(_open(bucket))
    assert raised.value.context["file"] == name
    assert ".log" not in raised.value.message


def test_names_that_are_no_commits_are_ignored(bucket: MemoryBucket):
    for name in ("log/tmp", "log/0000000000000000/x.kmq", "log/0000000000000001/1.kmq", "log/z/"):
        bucket.objects[name] = b"torn"
        bucket._times[name] = 0
    assert values_of(_open(bucket)) == [b"0", b"1", b"2", b"3"]
