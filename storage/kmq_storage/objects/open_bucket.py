"""URLs of buckets to places: which client serves which scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kmq_storage.errors import InvalidRequestError
from kmq_storage.objects.bucket import Bucket
from kmq_storage.objects.bucket_files import CACHE_BYTES, BucketFiles
from kmq_storage.objects.credentials import check_url
from kmq_storage.objects.fsspec_bucket import open_fsspec
from kmq_storage.objects.obstore_bucket import SCHEMES, open_obstore

_KNOWN = ("file", "memory", *SCHEMES)


def open_bucket_files(
    url: str, scheme: str, options: Mapping[str, Any], *, read_only: bool
) -> BucketFiles:
    """The place of a store in a bucket."""
    check_url(url)
    options = dict(options)
    cache_bytes = options.pop("cache_bytes", CACHE_BYTES)
    if not isinstance(cache_bytes, int) or cache_bytes < 0:
        raise InvalidRequestError("storage_options: cache_bytes is a number of bytes")
    url = url.rstrip("/")
    return BucketFiles(_opened(url, scheme, options), read_only=read_only, cache_bytes=cache_bytes)


def _opened(url: str, scheme: str, options: Mapping[str, Any]) -> Bucket:
    if scheme in SCHEMES:
        return open_obstore(url, options)
    return open_fsspec(url, options, _KNOWN)
