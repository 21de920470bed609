"""A store in a bucket is verified and repaired like one on a disk."""

from __future__ import annotations

import random

import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_storage.environment import SYSTEM
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket_files import BucketFiles
from tests.support.memory_bucket import MemoryBucket


@pytest.fixture
def bucket() -> MemoryBucket:
    bucket = MemoryBucket("memory-bucket://damage")
    with _store(bucket) as store:
        store.create_topic("t", partitions=2, compression="lz4")
        for round_ in range(3):
            with store.producer() as producer:
                for number in range(30):
                    producer.send("t", b"%d %d" % (round_, number), partition=number % 2)
            if round_ == 0:
                store.seal()
                store.checkpoint()
    return bucket


def _store(bucket: MemoryBucket) -> Store:
    files = BucketFiles(bucket, environment=SYSTEM)
    identity = open_identity(files, SYSTEM, create=True)
    return Store(open_commit_log(files, identity, SYSTEM))


def test_a_whole_bucket_is_whole(bucket: MemoryBucket):
    with _store(bucket) as store:
        assert store.verify(deep=True).damage == []


@pytest.mark.parametrize("kind", ["log", "segments", "checkpoints", "pages"])
def test_every_changed_byte_of_an_object_is_found(bucket: MemoryBucket, kind: str):
    rng = random.Random(5)
    names = [name for name in bucket.objects if name.startswith(kind)]
    assert names
    for _ in range(25):
        name = rng.choice(names)
        original = bucket.objects[name]
        changed = bytearray(original)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        bucket.objects[name] = bytes(changed)
        with _store(bucket) as store:
            damage = store.verify(deep=True).damage
        assert name in {each.file for each in damage}
        bucket.objects[name] = original


def test_a_missing_commit_is_damage(bucket: MemoryBucket):
    name = sorted(name for name in bucket.objects if name.startswith("log"))[-2]
    del bucket.objects[name]
    with _store(bucket) as store:
        assert name in {each.file for each in store.verify().damage}


def test_damaged_records_of_a_segment_are_cut_out(bucket: MemoryBucket):
    name = next(name for name in bucket.objects if name.startswith("segments"))
    contents = bytearray(bucket.objects[name])
    contents[len(contents) // 3] ^= 1
    bucket.objects[name] = bytes(contents)
    with _store(bucket) as store:
        assert store.repair(drop_damaged=True).damage == []
        lost = 0
        for partition in range(2):
            try:
                store.read("t", partitions=[partition]).read_all()
            except kmq.DataLossError as error:
                lost += error.context["end"] - error.context["start"]
        assert lost in (0, 15)
