"""A store in a bucket of this process, and what is done to it."""

from __future__ import annotations

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_storage.environment import SYSTEM
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.cache_folder import CacheFolder
from tests.support.memory_bucket import MemoryBucket


def filled_bucket() -> MemoryBucket:
    """Ninety records on two partitions, a third of them sealed."""
    bucket = MemoryBucket("memory-bucket://damage")
    with store_in(bucket) as store:
        store.create_topic("t", partitions=2, compression="lz4")
        for round_ in range(3):
            with store.producer() as producer:
                for number in range(30):
                    producer.send("t", b"%d %d" % (round_, number), partition=number % 2)
            if round_ == 0:
                store.seal()
                store.checkpoint()
    return bucket


def store_in(bucket: MemoryBucket, folder: CacheFolder | None = None) -> Store:
    """The store in a bucket; a new one where there is none."""
    files = BucketFiles(bucket, cache_folder=folder, environment=SYSTEM)
    identity = open_identity(files, SYSTEM, create=True)
    return Store(open_commit_log(files, identity, SYSTEM))


def commits_of(bucket: MemoryBucket) -> list[str]:
    """The objects of its commits, the oldest first."""
    return sorted(name for name in bucket.objects if name.startswith("log"))


def flip(bucket: MemoryBucket, name: str) -> None:
    """Change a byte of an object."""
    changed = bytearray(bucket.objects[name])
    changed[20] ^= 1
    bucket.objects[name] = bytes(changed)


def remove(bucket: MemoryBucket, name: str) -> None:
    """Remove an object."""
    del bucket.objects[name]


def read_around(store: Store, partition: int) -> list[tuple[int, bytes]]:
    """Offsets and values of a partition, but for what readers are told is lost."""
    found: list[tuple[int, bytes]] = []
    start, end = store.offsets("t")[partition]
    while start < end:
        try:
            table = store.read("t", partitions=[partition], start={partition: start}).read_all()
        except kmq.DataLossError as error:
            gap = error.context["start"], error.context["end"]
            table = store.read(
                "t", partitions=[partition], start={partition: start}, end={partition: gap[0]}
            ).read_all()
            start = gap[1]
        else:
            start = end
        found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


def goes_on(bucket: MemoryBucket, before: list[list[tuple[int, bytes]]]) -> None:
    """Everything works, and no offset is given out again."""
    with store_in(bucket) as store:
        for partition, known in enumerate(before):
            with store.producer() as producer:
                sent = producer.send("t", b"new", partition=partition).result(10)
            assert sent.offset > known[-1][0]
            assert read_around(store, partition)[-1] == (sent.offset, b"new")
        store.maintain()
        assert store.verify(deep=True).damage == []
