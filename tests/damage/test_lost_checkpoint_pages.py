"""Stores that don't open, of which the newest checkpoint that can be read has damaged pages.

Finds: a way out that ends at the page, so that nothing is left of a store whose segments are whole.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kmq_spark as kmq
from kmq_storage import paths
from kmq_storage.environment import SYSTEM
from kmq_storage.integrity.repairs.rebuild import rebuild
from kmq_storage.log.bucket.collected import mark_collected
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.bucket_files import BucketFiles
from tests.damage.bucket import commits_of, filled_bucket, flip, read_around, remove, store_in
from tests.support.memory_bucket import MemoryBucket


@pytest.mark.parametrize("harm", [flip, remove])
def test_a_store_without_its_log_whose_page_is_damaged_comes_back_from_its_segments(
    harm: Callable[[MemoryBucket, str], None],
):
    bucket = filled_bucket()
    with store_in(bucket) as store:
        store.alter_topic("t", retention=1e9)
        store.seal()
        store.checkpoint()
        before = [read_around(store, partition) for partition in range(2)]
        mark_collected(store.log.files, store.checkpoint().lsn + 1)
    for name in commits_of(bucket):
        remove(bucket, name)
    for name in [name for name in bucket.objects if name.startswith(paths.PAGE_FOLDER)]:
        harm(bucket, name)
    with pytest.raises(kmq.CorruptionError):
        store_in(bucket).log.refresh()
    files = BucketFiles(bucket)
    rebuild(files, open_identity(files, SYSTEM, create=False), SYSTEM)
    with store_in(bucket) as store:
        assert store.repair(drop_damaged=True).damage == []
        assert [read_around(store, partition) for partition in range(2)] == before
        assert store.topics()[0].settings.retention == 1e9  # the checkpoint tells that still
