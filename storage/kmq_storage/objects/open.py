"""Opening the place of a store by its URL or path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kmq_storage.errors import InvalidRequestError
from kmq_storage.objects.credentials import without_userinfo
from kmq_storage.objects.disk import Disk
from kmq_storage.objects.file_systems import check_file_system
from kmq_storage.objects.local import LocalDisk
from kmq_storage.objects.memory import memory_disk
from kmq_storage.objects.storage_options import checked_options
from kmq_storage.objects.urls import scheme_of, whole_url

if TYPE_CHECKING:
    from kmq_storage.objects.bucket_files import BucketFiles


def open_files(
    url: str | os.PathLike[str],
    *,
    read_only: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Disk | BucketFiles:
    """The place behind a path or URL; relative paths are fixed.

    `storage_options` are for buckets: the credentials and settings of their client, `cache_bytes`,
    how much of what was read is kept in memory, and `cache_folder` and `cache_folder_bytes`: where
    and how much of it is kept on a disk.
    """
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else url
    if not isinstance(text, str) or not _can_be_named(text):
        raise InvalidRequestError(f"store {text!r} is not a path or URL")
    text, options = whole_url(text), checked_options(storage_options)
    scheme = scheme_of(text)
    if scheme and not text.partition("://")[2].strip("/"):
        raise InvalidRequestError(f"store {text!r} names no place: {scheme}://... and more")
    if scheme not in ("", "file", "memory"):
        return _bucket(text, scheme, options, read_only=read_only)
    if options:
        shown, given = without_userinfo(text), ", ".join(sorted(options))
        raise InvalidRequestError(
            f"storage_options ({given}) are for stores in buckets, not for {shown}"
        )
    if not scheme:
        return _local(Path(text), read_only=read_only)
    return _own(text, read_only=read_only)


def _can_be_named(text: str) -> bool:
    """Whether the system accepts this text as a file name."""
    try:
        return bool(os.fsencode(text)) and "\0" not in text
    except UnicodeEncodeError:
        return False


def _own(text: str, *, read_only: bool) -> Disk:
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise InvalidRequestError(
            f"store {without_userinfo(text)!r}: a URL of a store has no query or fragment; write "
            "%3F and %23 for the signs, or give the path itself"
        )
    if parts.scheme == "memory":
        return memory_disk(parts.netloc + parts.path.rstrip("/"), read_only=read_only)
    if parts.netloc in ("", "localhost"):
        return _local(Path(unquote(parts.path)), read_only=read_only)
    shown = without_userinfo(text)
    raise InvalidRequestError(f"store {shown!r} is on another host; use a path of this one")


def _bucket(text: str, scheme: str, options: dict[str, Any], *, read_only: bool) -> BucketFiles:
    # Imported only here, as local stores don't need it.
    from kmq_storage.objects.open_bucket import open_bucket_files

    return open_bucket_files(text, scheme, options, read_only=read_only)


def _local(path: Path, *, read_only: bool) -> LocalDisk:
    try:
        folder = path.expanduser().absolute()
    except RuntimeError as error:  # `~name` with an unknown user
        raise InvalidRequestError(f"store {str(path)!r} is no path: {error}") from error
    except FileNotFoundError as error:
        raise InvalidRequestError(
            f"store {str(path)!r} is relative to the current folder, which does not exist any "
            "more; give an absolute path"
        ) from error
    check_file_system(folder)
    return LocalDisk(folder, read_only=read_only)
