"""Opening a store: where it is, how it is opened, and what it runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kmq_spark.client.handles.arguments import DURABILITIES, check_choice, checked_flag
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
        url: Where the store is. A relative path is resolved now, so a later `chdir` changes
            nothing.
        create: Make the store when it is missing. With False a missing store is NotFoundError. A
            folder that holds other files is never made a store (InvalidRequestError).
        read_only: Refuse every write with IllegalStateError, and never change a byte.
        durability: When a record counts as acknowledged, and readers see it. "fsync": once it is on
            disk or in the bucket. "os": once it is written, which survives `kill -9` but not power
            loss.
        storage_options: For stores in buckets. Credentials and endpoint under the names of obstore
            (`access_key_id`, ...) or s3fs (`key`, `secret`, `endpoint_url`); without them the usual
            environment variables are read. `cache_bytes`: memory for what was read (64 MiB).
            `cache_folder`: a folder in which the processes of this host share what they read of
            staged batches, segments and manifest pages, up to `cache_folder_bytes` (10 GiB).
        maintenance: Maintain the store in a background thread (as `Store.maintain` does) once it
            has a producer, a member of a group, or an open queue.
        environment: The source of time, ids and randomness; tests replace it.

    Raises:
        NotFoundError: There is no store, and `create` is False.
        InvalidRequestError: `url` is a file, or has an unknown scheme; or an option is wrong.
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
            raise NotFoundError(
                f"Store[{files.url}] was replaced by another store.", store=files.url
            )
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
    """Make a store at `target` with the present content of another store; later writes stay apart.

    Sealed records are shared, not copied, so `target` must be on the same file system, or in the
    same bucket. What is written to one of the two stores is never seen in the other.

    Args:
        source: The store to clone, as a path or URL.
        target: Where the clone is made; AlreadyExistsError when there is a store already.
        read_only: The clone takes no writes.
        storage_options: As for `open`, for both places.
    """
    from kmq_storage.cloning.clone import make_clone  # for a quick import of kmq

    files, identity = open_place(source, read_only=True, storage_options=storage_options)
    with closing(open_commit_log(files, identity, SYSTEM)) as log:
        place = open_files(target, storage_options=storage_options)
        with closing(place):
            return make_clone(log, place, read_only=checked_flag("read_only", read_only))
