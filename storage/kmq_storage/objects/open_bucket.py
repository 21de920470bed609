"""Opening a store in a bucket: which client serves which scheme."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmq_storage.errors import InvalidRequestError
from kmq_storage.objects.bucket import Bucket
from kmq_storage.objects.bucket_files import CACHE_BYTES, BucketFiles
from kmq_storage.objects.cache_folder import CacheFolder
from kmq_storage.objects.credentials import check_url
from kmq_storage.objects.fsspec_bucket import open_fsspec
from kmq_storage.objects.obstore_bucket import SCHEMES, open_obstore

#: The limit of the folder `cache_folder`, unless `cache_folder_bytes` sets another one.
CACHE_FOLDER_BYTES = 10 << 30

_KNOWN = ("file", "memory", *SCHEMES)


def open_bucket_files(
    url: str, scheme: str, options: Mapping[str, Any], *, read_only: bool
) -> BucketFiles:
    """The files of a store in a bucket."""
    check_url(url)
    options = dict(options)
    url = url.rstrip("/")
    cache_bytes = _number(options, "cache_bytes", CACHE_BYTES)
    folder = _cache_folder(url, options)
    bucket = _opened(url, scheme, options)
    return BucketFiles(bucket, read_only=read_only, cache_bytes=cache_bytes, cache_folder=folder)


def _cache_folder(url: str, options: dict[str, Any]) -> CacheFolder | None:
    folder = options.pop("cache_folder", None)
    size = _number(options, "cache_folder_bytes", CACHE_FOLDER_BYTES)
    if folder is not None and not (isinstance(folder, str | os.PathLike) and str(folder)):
        given = type(folder).__name__ if folder != "" else "an empty text"
        raise InvalidRequestError(f"storage_options: cache_folder is a path, not {given}")
    if folder is None:
        return None
    path = Path(folder).expanduser()
    if path.exists() and not path.is_dir():
        raise InvalidRequestError(f"storage_options: cache_folder {path} is no folder")
    return CacheFolder(path, url, size)


def _number(options: dict[str, Any], name: str, default: int) -> int:
    """Take a number of bytes from the options, which may be text, as in Spark."""
    given = options.pop(name, default)
    if isinstance(given, str) and given.isdecimal():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise InvalidRequestError(
            f"storage_options: {name} is a number of bytes, not {_kind(given)}",
            option="storage_options",
        )
    return given


def _kind(given: object) -> str:
    if isinstance(given, str):
        return "other text"
    return "a negative one" if isinstance(given, int) and given < 0 else type(given).__name__


def _opened(url: str, scheme: str, options: Mapping[str, Any]) -> Bucket:
    if scheme in SCHEMES:
        return open_obstore(url, options)
    return open_fsspec(url, options, _KNOWN)
