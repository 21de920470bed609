"""Opening a store: its files, its identity, and the commit log for the kind of place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kmq_storage import paths
from kmq_storage.environment import SYSTEM, Environment
from kmq_storage.errors import InvalidRequestError
from kmq_storage.format.identity import Identity
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.disk_errors import translated
from kmq_storage.log.store_files import open_identity
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.files import Files
from kmq_storage.objects.open import open_files

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
    """The files of a store, with those that a clone shares with other stores, and its identity.

    A clone that was made read-only opens read-only in any case. NotFoundError when there is no
    store and `create` is False. InvalidRequestError when the files were copied as they are from a
    disk to a bucket or back: the commits have other names there and would not be found.
    """
    files = open_files(url, read_only=read_only, storage_options=storage_options)
    identity = open_identity(files, environment, create=create)
    if identity.read_only and not read_only:
        files = open_files(url, read_only=True, storage_options=storage_options)
    files = with_shared(files, identity)
    with translated(files.url):
        _check_not_brought(files, identity)
    return files, identity


def with_shared(files: Disk | BucketFiles, identity: Identity) -> Disk | BucketFiles:
    """The files of a store with those it shares; InvalidRequestError when they are elsewhere."""
    if not identity.origins:
        return files
    if is_disk(files):
        raise InvalidRequestError(
            f"store {files.url} was taken out of its bucket: it is a clone, and files that it "
            f"needs are there below {', '.join(identity.origins)}; `kmq copy` makes a whole one",
            url=files.url,
        )
    return files.with_origins(identity.origins)


def _check_not_brought(files: Disk | BucketFiles, identity: Identity) -> None:
    """InvalidRequestError for a store that was moved as files between a disk and a bucket.

    kmq.json tells which of both it was made in. In the other one, its log would look empty.
    """
    on_disk, made_on_disk = is_disk(files), identity.bucket is None
    if on_disk == made_on_disk:
        return
    found = (file.path for file in files.walk(paths.LOG_FOLDER))
    commits = next((path for path in found if _has_commits(path, of_disk=made_on_disk)), None)
    if commits is not None:
        here, there = ("a folder", "a bucket") if on_disk else ("a bucket", "a folder")
        raise InvalidRequestError(
            f"store {files.url} was made in {there} and is in {here} now, where its commits (as "
            f"{commits}) are not read; bring it here with `kmq copy` from {there}",
            url=files.url,
            file=commits,
        )


def _has_commits(path: str, *, of_disk: bool) -> bool:
    name = path.removeprefix(f"{paths.LOG_FOLDER}/")
    return (paths.try_first_lsn(name) if of_disk else paths.try_commit_lsn(path)) is not None


def open_commit_log(
    files: Disk | BucketFiles,
    identity: Identity,
    environment: Environment,
    *,
    durable: bool = True,
) -> CommitLog:
    """A handle on the commit log of the store with these files."""
    if is_disk(files):
        return LocalLog(files, identity, environment, durable=durable)
    from kmq_storage.log.bucket.bucket_log import (
        BucketLog,  # only when needed: the import takes long
    )

    return BucketLog(files, identity, environment, durable=durable)


def is_disk(files: Files) -> TypeIs[Disk]:
    """Whether a store is in a folder or in memory, so that its log is in files."""
    return hasattr(files, "open_log")


def bucket_files(files: Files) -> BucketFiles:
    """The same files, for a store in a bucket."""
    from kmq_storage.objects.bucket_files import BucketFiles  # only when needed

    assert isinstance(files, BucketFiles), "a store is on a disk or in a bucket"
    return files
