"""Opening a store: its place and identity, and which commit log it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.identity import Identity
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.open import open_disk

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from kmq_storage.objects.bucket_files import BucketFiles


def open_place(
    url: str | os.PathLike[str],
    *,
    create: bool = False,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    environment: Environment = SYSTEM,
) -> tuple[Disk | BucketFiles, Identity]:
    """Where a store is, with all that it shares with others, and its identity.

    NotFoundError when there is none and `create` makes none; a clone that was made read-only is
    read-only however it is opened.
    """
    disk = open_disk(url, read_only=read_only, storage_options=storage_options)
    identity = open_identity(disk, environment, create=create)
    if identity.read_only and not read_only:
        disk = open_disk(url, read_only=True, storage_options=storage_options)
    return with_shared(disk, identity), identity


def with_shared(disk: Disk | BucketFiles, identity: Identity) -> Disk | BucketFiles:
    """The place of a store with what it reads of others; InvalidRequestError when that is away."""
    if not identity.origins:
        return disk
    if _is_disk(disk):
        raise InvalidRequestError(
            f"store {disk.url} was taken out of its bucket: it is a clone, and files that it needs "
            f"stand there below {', '.join(identity.origins)}; use `kmq copy` to get a whole one",
            url=disk.url,
        )
    return disk.with_origins(identity.origins)


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
