"""Opening a store: where it is, how it is opened, and what it runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kmq_spark.client.arguments import DURABILITIES, check_choice
from kmq_spark.client.store import Store
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.log.open import open_commit_log
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.open import open_disk


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
        create: make the store when it is missing; else NotFoundError.
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
    disk = open_disk(url, read_only=read_only, storage_options=storage_options)
    identity = open_identity(disk, environment, create=create)
    log = open_commit_log(disk, identity, environment, durable=durability == "fsync")
    return Store(log, maintenance=maintenance)
