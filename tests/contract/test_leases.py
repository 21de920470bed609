"""Leases in a bucket, and who comes back after its own ended.

Finds locks of a bucket that harm whoever meets them damaged, or that nobody is told of, and a
member that was stopped and undoes what an administrator set meanwhile.
"""

from __future__ import annotations

import json

import pytest

import kmq_spark as kmq
from kmq_spark.client.store import Store
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.limits import LEASE_SECONDS
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.background import BackgroundMaintenance
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.lease import Lease, decode_lease
from tests.support.members import without_watch
from tests.support.memory_bucket import MemoryBucket
from tests.support.threads import no_more_threads

_FOLDER = "locks/a.lock"
_FIRST, _SECOND = paths.lease(_FOLDER, 1), paths.lease(_FOLDER, 2)


class _Bucket(MemoryBucket):
    """A bucket with a clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1_000_000_000
        super().__init__("memory-bucket://leases", clock=lambda: self.now)

    def lock(self) -> Lease:
        return Lease(self, _FOLDER, SYSTEM)

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1e6)


@pytest.fixture
def bucket() -> _Bucket:
    """A bucket with a lock that its dead holder never gave back."""
    bucket = _Bucket()
    bucket.put(_FIRST, [_lease(holder="process 7 on h")])
    return bucket


def _lease(**members: object) -> bytes:
    """A lease as before there were checksums."""
    facts = {"nonce": "n", "holder": "h", "seconds": LEASE_SECONDS, "released": False}
    return json.dumps({**facts, **members}).encode()


def test_a_lease_that_no_thread_can_renew_is_not_held():
    bucket = _Bucket()
    lock = bucket.lock()
    with no_more_threads(), pytest.raises(RuntimeError):
        lock.try_acquire()
    bucket.wait(LEASE_SECONDS + 1)
    assert lock.try_acquire()
    lock.release()


def test_a_changed_byte_of_a_lease_is_noticed():
    bucket = _Bucket()
    assert bucket.lock().try_acquire()
    raw = bucket.objects[_FIRST]
    assert decode_lease(raw) is not None
    for at in range(len(raw)):
        assert decode_lease(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]) is None
        assert decode_lease(raw[:at]) is None


def test_a_lease_without_a_checksum_is_what_it_was(bucket: _Bucket):
    assert not bucket.lock().try_acquire()
    assert bucket.lock().holder().startswith("process 7 on h;")
    bucket.put(_FIRST, [_lease(released=True)])
    assert bucket.lock().try_acquire()


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"\xff", b'{"nonce": 1}', _lease()[:-1]])
def test_a_damaged_lease_counts_until_it_is_old_and_is_replaced_then(
    bucket: _Bucket, damaged: bytes
):
    bucket.put(_FIRST, [damaged])
    assert bucket.lock().is_held()
    assert not bucket.lock().try_acquire()
    assert "damaged" in bucket.lock().holder()
    bucket.wait(LEASE_SECONDS + 1)
    assert not bucket.lock().is_held()
    assert bucket.lock().try_acquire()
    assert set(bucket.objects) == {_SECOND}


def _store(bucket: MemoryBucket) -> Store:
    files = BucketFiles(bucket, environment=SYSTEM)
    return Store(open_commit_log(files, open_identity(files, SYSTEM, create=True), SYSTEM))


def test_groups_whose_lock_is_damaged_go_on_and_verify_tells_of_it():
    bucket = _Bucket()
    with _store(bucket) as store:
        store.create_topic("t")
        with store.consumer("g", topics="t", name="till"):
            pass
        assert store.verify(deep=True).notes == []
        file = next(name for name in bucket.objects if ".member/" in name)
        bucket.objects[file] = bucket.objects[file][:-5]
        report = store.verify(deep=True)
        assert report.ok
        assert report.notes == [f"{file}: damaged lease, harmless: replaced at its next use"]
        assert [group.name for group in store.groups()] == ["g"]
        with pytest.raises(kmq.IllegalStateError, match="live member"):
            store.delete_group("g")
        bucket.wait(LEASE_SECONDS + 1)
        with store.consumer("g", topics="t", name="till"):
            assert store.verify(deep=True).notes == []


def test_maintenance_in_the_background_survives_a_damaged_lock():
    bucket = _Bucket()
    with _store(bucket) as store:
        store.create_topic("t")
        bucket.objects[paths.lease(paths.MAINTAIN_LOCK, 1)] = b"{"
        bucket._times[paths.lease(paths.MAINTAIN_LOCK, 1)] = 0
        maintenance = BackgroundMaintenance(store.log)
        maintenance._maintain()
    assert paths.lease(paths.MAINTAIN_LOCK, 2) in bucket.objects


def test_who_lost_a_lease_leaves_the_one_of_its_successor_as_it_is():
    bucket = _Bucket()
    lock = bucket.lock()
    assert lock.try_acquire()
    bucket.put(_FIRST, [_lease(nonce="another's")])  # no upload is conditional there
    lock.release()
    assert bucket.objects[_FIRST] == _lease(nonce="another's")


def test_a_member_that_was_stopped_does_not_undo_what_was_set_for_its_group_meanwhile():
    bucket = _Bucket()
    with without_watch(), _store(bucket) as store, store.producer() as producer:
        store.create_topic("t")
        producer.send_batch("t", [b"%d" % n for n in range(9)]).result()
        with store.consumer("g", topics="t") as stopped:
            assert len(stopped.consume(3)) == 3
            with pytest.raises(kmq.IllegalStateError, match="live member"):
                store.set_group_offsets("g", {"t": {0: 9}})
            bucket.wait(46)  # beyond its session
            store.set_group_offsets("g", {"t": {0: 9}})
            with pytest.raises(kmq.FencedError):
                stopped.commit()
            assert stopped.position() == {"t": {0: 9}}  # it joined again
        assert store.describe_group("g").committed == {"t": {0: 9}}
