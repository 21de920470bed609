"""A bucket in memory whose user dies at the n-th change, and stores in it that may be cloned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kmq_spark.client.store import Store
from kmq_storage import paths
from kmq_storage.cloning.clone import make_clone
from kmq_storage.environment import SYSTEM
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.open import open_commit_log, with_shared
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance.reports import CloneReport
from kmq_storage.objects.bucket import Put
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.files import Bytes
from tests.support.dying_disk import Died
from tests.support.engine import Sent, send_rows
from tests.support.memory_bucket import MemoryBucket
from tests.support.storage import collect_all

ROWS = [Sent(b"k%d" % (n % 5), b"v%d" % n, n) for n in range(10)]


class DyingBucket(MemoryBucket):
    """Raises `Died` before the change after the next `changes_left` ones; None lives on."""

    changes_left: int | None = None

    def _change(self, name: str) -> None:
        if name.startswith((paths.LOCK_FOLDER, paths.CLOCK_FOLDER)) or self.changes_left is None:
            return
        if self.changes_left == 0:
            raise Died
        self.changes_left -= 1

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        self._change(name)
        super().put(name, buffers)

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        self._change(name)
        return super().put_if_absent(name, buffers)

    def delete(self, *names: str) -> None:
        for name in names:
            self._change(name)
            super().delete(name)

    def revive(self) -> None:
        """Another process comes: the leases of the dead one are over."""
        self.changes_left = None
        for name in list(self.objects):
            if name.startswith(paths.LOCK_FOLDER):
                self.delete(name)


def files_of(bucket: MemoryBucket) -> BucketFiles:
    """The place of a store in a bucket, without a race for names, changed step by step."""
    files = BucketFiles(bucket, races=())
    files.uploads = 1
    return files


def log_of(bucket: MemoryBucket, *, create: bool = False) -> CommitLog:
    """A handle on the commit log of a store in a bucket, with all that it shares."""
    files = files_of(bucket)
    identity = open_identity(files, SYSTEM, create=create)
    return open_commit_log(with_shared(files, identity), identity, SYSTEM)


def open_bucket(bucket: MemoryBucket, *, create: bool = False) -> Store:
    """The store in a bucket."""
    return Store(log_of(bucket, create=create), maintenance=False)


def fill(store: Store) -> Store:
    """Have ten records in a segment, ten in a staged file and ten in the log."""
    store.create_topic("t", cleanup="compact")
    send_rows(store.log, "t", ROWS)
    store.seal()
    store.checkpoint()
    send_rows(store.log, "t", ROWS, staged=True)
    send_rows(store.log, "t", ROWS)
    return store


def clone_to(bucket: MemoryBucket, prefix: str) -> CloneReport:
    """Clone the store in a bucket to another prefix."""
    return make_clone(log_of(bucket), files_of(bucket.beside(prefix)))


def delete_all(bucket: MemoryBucket) -> None:
    """Delete a store, as its user would."""
    for name in list(bucket.objects):
        bucket.delete(name)


def shared_names(bucket: MemoryBucket) -> set[str]:
    """The files that clones may share."""
    folders = (paths.SEGMENT_FOLDER, paths.STAGED_FOLDER)
    return {name for name in bucket.objects if name.startswith(folders)}


def forget_all(store: Store) -> None:
    """Have the store need none of its files any more, and collect them."""
    store.seal()
    store.compact("t")
    store.trim("t", {0: store.offsets("t")[0][1]})
    store.checkpoint()
    collect_all(store.log)
