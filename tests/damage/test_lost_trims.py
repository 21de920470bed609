"""Trims and deletions that are lost with every checkpoint behind them.

Finds: offsets that stand nowhere or in two places, since a segment in the log began where the trim
said, records of partitions that lose more than what was trimmed, and a topic that loses its name to
one that was deleted before.
"""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.integrity.repairs.rebuild import rebuild
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket_files import BucketFiles
from tests.damage.bucket import read_around, store_in
from tests.support.memory_bucket import MemoryBucket


def _send(store: kmq.Store, *numbers: int) -> None:
    with store.producer() as producer:
        for number in numbers:
            producer.send("t", b"%d" % number)


def _forget_log(bucket: MemoryBucket, store: kmq.Store) -> None:
    last = store.checkpoint().lsn
    store.log.drop_before(last + 1)
    for lsn in range(last + 1):
        bucket.objects.pop(paths.commit_object(lsn), None)


def _lose_checkpoints(bucket: MemoryBucket, since: int) -> None:
    found = [name for name in bucket.objects if name.startswith(paths.CHECKPOINT_FOLDER)]
    for name in found:
        lsn, _ = paths.try_checkpoint(name.rpartition("/")[2])
        if lsn >= since:
            del bucket.objects[name]
    files = BucketFiles(bucket)
    rebuild(files, open_identity(files, SYSTEM, create=False), SYSTEM)


@pytest.mark.parametrize("is_first_left", [False, True])
def test_a_segment_that_a_lost_trim_cut_leaves_no_offset_without_a_place(is_first_left: bool):
    bucket = MemoryBucket("memory-bucket://trims")
    with store_in(bucket) as store:
        store.create_topic("t")
        _send(store, *range(5))
        store.seal()
        lost = store.checkpoint().lsn + 1
        store.trim("t", {0: 3})
        _send(store, *range(5, 10))
        store.seal()
        _forget_log(bucket, store)
        store.compact("t")
        _send(store, 10)
    _lose_checkpoints(bucket, lost if is_first_left else 0)
    with store_in(bucket) as store:
        assert store.offsets("t")[0] == (3, 11)
        assert store.topics()[0].rows == 8
        assert store.verify(deep=True).damage == []
        store.checkpoint()
        assert store.verify(deep=True).damage == []
        assert [int(value) for _, value in read_around(store, 0)] == [*range(3, 11)]


@pytest.mark.parametrize("attempt", range(6))
def test_of_topics_that_had_one_name_after_another_the_last_one_keeps_it(attempt: int):
    bucket = MemoryBucket(f"memory-bucket://names-{attempt}")
    with store_in(bucket) as store:
        for number in range(2):  # the ids are random, and so is which one comes first
            store.create_topic("t")
            _send(store, number)
            store.seal()
            if not number:
                store.delete_topic("t")
        _forget_log(bucket, store)
        _send(store, 2)
    _lose_checkpoints(bucket, 0)
    with store_in(bucket) as store:
        assert [int(value) for _, value in read_around(store, 0)] == [1, 2]
