"""Which commit log a store has: it depends on where the store is."""

from __future__ import annotations

from kmq_storage.environment import Environment
from kmq_storage.format.identity import Identity
from kmq_storage.log.bucket_log import BucketLog
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.objects.bucket_files import BucketFiles
from kmq_storage.objects.disk import Disk


def open_commit_log(
    disk: Disk | BucketFiles,
    identity: Identity,
    environment: Environment,
    *,
    durable: bool = True,
) -> CommitLog:
    """A handle on the commit log of the store in this place."""
    if isinstance(disk, BucketFiles):
        return BucketLog(disk, identity, environment, durable=durable)
    return LocalLog(disk, identity, environment, durable=durable)
