"""Which commit log a store has: it depends on where the store is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmq_storage.environment import Environment
from kmq_storage.format.identity import Identity
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.objects.disk import Disk

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from kmq_storage.objects.bucket_files import BucketFiles


def open_commit_log(
    disk: Disk | BucketFiles,
    identity: Identity,
    environment: Environment,
    *,
    durable: bool = True,
) -> CommitLog:
    """A handle on the commit log of the store in this place."""
    if _is_disk(disk):
        return LocalLog(disk, identity, environment, durable=durable)
    from kmq_storage.log.bucket_log import BucketLog  # only then: imports take their time

    return BucketLog(disk, identity, environment, durable=durable)


def _is_disk(disk: Disk | BucketFiles) -> TypeIs[Disk]:
    return hasattr(disk, "open_log")
