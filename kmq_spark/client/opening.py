"""Opening a store: where it is, how it is opened, and what it runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kmq_spark.client.arguments import DURABILITIES, check_choice, checked_flag
from kmq_spark.client.store import Store
from kmq_spark.errors import NotFoundError
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.log.open import open_commit_log, open_place
from kmq_storage.objects.open import open_files

if TYPE_CHECKING:
    from kmq_storage.log.commit_log import CommitLog
    from kmq_storage.maintenance.reports import CloneReport


def open_store(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: str = "fsync",
    storage_options: Mapping[str, Any] | None = None,
    maintenance: bool = True,
    environment: Environment = SYSTEM,
) -> Store:
    """Open the store in a folder, in memory (`memory://name`) or in a bucket (`s3://...`).

    Args:
        url: where it is; a relative path is fixed now.
        create: make the store when it is missing; else NotFoundError. In a folder with files of
            others none is made (InvalidRequestError).
        read_only: refuse writes (IllegalStateError) and never change a byte.
        durability: `fsync`: acknowledged and visible means on disk. `os`: written, which
            survives `kill -9` but not power loss.
        maintenance: look after the store in the background while there are producers.
        storage_options: for stores in buckets, which read the usual environment variables
            without them: the names of obstore (`access_key_id`, ...) or s3fs (`key`, `secret`,
            `endpoint_url`); `cache_bytes`, kept in memory of what was read (64 MiB); and
            `cache_folder`, where processes of this host share what they read of staged batches,
            segments and pages, up to `cache_folder_bytes` (10 GiB).
        environment: the source of time, ids and randomness.

    """
    check_choice("durability", durability, DURABILITIES)
    maintained = checked_flag("maintenance", maintenance)
    files, identity = open_place(
        url,
        create=checked_flag("create", create),
        read_only=checked_flag("read_only", read_only),
        storage_options=storage_options,
        environment=environment,
    )
    durable = durability == "fsync"

    def again() -> CommitLog:
        there, found = open_place(
            files.url, read_only=True, storage_options=storage_options, environment=environment
        )
        if found.store_id != identity.store_id:
            there.close()
            raise NotFoundError(f"Store[{files.url}] is another one now.", store=files.url)
        return open_commit_log(there, found, environment, durable=durable)

    log = open_commit_log(files, identity, environment, durable=durable)
    return Store(log, maintenance=maintained, again=again)


def clone_store(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> CloneReport:
    """Make a store at `target` that has the content of another now, and a life of its own.

    Sealed records are shared, not copied: `target` is on the same file system, or in the same
    bucket. Neither store sees what is written to the other; `read_only` clones take no writes.
    AlreadyExistsError when there is a store.
    """
    from kmq_storage.cloning import make_clone  # for a quick import of kmq

    files, identity = open_place(source, read_only=True, storage_options=storage_options)
    with closing(open_commit_log(files, identity, SYSTEM)) as log:
        place = open_files(target, storage_options=storage_options)
        with closing(place):
            return make_clone(log, place, read_only=checked_flag("read_only", read_only))
