"""Buckets behind any other URL that fsspec knows.

Each bucket uses its own file system instance without a cache of listings, since a shared one may
return old listings of other callers. The probe at the creation of a store shows whether names are
created atomically. Most file systems check first and then write, so they take only one writer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from kmq_storage.errors import InvalidRequestError
from kmq_storage.model import to_microseconds
from kmq_storage.names import nearest
from kmq_storage.objects.bucket import (
    Fetched,
    Put,
    head_of,
    joined_bytes,
    put_outcome,
    url_beside,
    views_of,
)
from kmq_storage.objects.credentials import check_process, secrets_of, without_secrets
from kmq_storage.objects.files import Bytes, FoundFile

#: fsspec's schemes that can't hold a store: they are read-only, wrap other places, have no server
#: time (ftp), or have their own kind of store in kmq.
_UNFIT = frozenset(
    (
        *("http", "https", "ftp", "data", "local", "memory", "dir", "generic", "async_wrapper"),
        *("cached", "blockcache", "filecache", "simplecache", "reference"),
        *("zip", "tar", "libarchive", "github", "git", "gist", "jupyter", "root"),
    )
)
#: Schemes with another name under which kmq needs no fsspec client.
_BETTER = {"s3a": "s3", "gcs": "gs"}
_WHOLE_BYTES = 16 * 1024 * 1024
_TIME_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified")

T = TypeVar("T")


def open_fsspec(url: str, options: Mapping[str, Any], known: Sequence[str]) -> FsspecBucket:
    """The place at a URL; InvalidRequestError when fsspec has none, or it is unfit."""
    import fsspec

    scheme = url.partition("://")[0]
    protocols = {*fsspec.available_protocols(), *fsspec.registry}  # by name, and by class
    if scheme in _UNFIT or "::" in url or scheme not in protocols:
        usable = [*known, *sorted(protocols - _UNFIT)]
        raise InvalidRequestError(
            f"store scheme {scheme!r} is not one for stores{nearest(scheme, usable)}; use a path, "
            "file:///..., memory://name, s3://..., gs://..., az://... or another of fsspec's",
            scheme=scheme,
        )
    secrets = secrets_of(options)
    settings = {"skip_instance_cache": True, "use_listings_cache": False, **options}
    try:
        files, root = fsspec.core.url_to_fs(url, **settings)
    except ImportError as error:
        raise InvalidRequestError(_other_name(url, error), url=url) from None
    except Exception as error:
        reason = without_secrets(str(error), secrets)
        raise InvalidRequestError(f"store {url} can't be opened: {reason}", url=url) from None
    return FsspecBucket(
        url, files, str(root).rstrip("/"), secrets, lambda other: open_fsspec(other, options, known)
    )


class FsspecBucket:
    """A folder of an fsspec file system."""

    def __init__(
        self,
        url: str,
        files: Any,
        root: str,
        secrets: frozenset[str],
        opened: Callable[[str], FsspecBucket],
    ) -> None:
        self.url = url
        self._files = files
        self._root = root
        self._secrets = secrets
        self._opened = opened
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"FsspecBucket({self.url!r})"

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """See `Bucket.get`."""
        path = self._path(name)
        end = None if length is None else start + length
        try:
            data = self._call(lambda: self._files.cat_file(path, start=start, end=end))
        except (FileNotFoundError, PermissionError):
            raise
        except OSError:
            size = self._size(path)
            if start < size:
                raise
            return Fetched(pa.py_buffer(b""), size)  # no such range
        size = start + len(data)
        if length is not None and len(data) >= length:
            size = self._size(path)
            if len(data) > length:  # some servers answer a range with the whole file
                data = data[start : start + length]
        return Fetched(pa.py_buffer(data), size)

    def _size(self, path: str) -> int:
        return int(self._call(lambda: self._files.info(path))["size"])

    def modified(self, name: str) -> int:
        """See `Bucket.modified`."""
        path = self._path(name)
        return _microseconds(self._call(lambda: self._files.info(path)))

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        """See `Bucket.put`."""
        path, views = self._path(name), views_of(buffers)
        first, is_all = head_of(views, _WHOLE_BYTES)
        body = b"".join(first)
        if is_all:
            self._in_folder(path, lambda: self._files.pipe_file(path, body))
        else:
            self._in_folder(path, lambda: self._stream(path, chain([body], views)))

    def _stream(self, path: str, pieces: Iterable[bytes | memoryview]) -> None:
        with self._files.open(path, "wb") as file:
            for piece in pieces:
                file.write(piece)

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        """See `Bucket.put_if_absent`; after a retry of the client, the outcome is unknown, too."""
        path, body = self._path(name), joined_bytes(buffers)
        return put_outcome(
            lambda: self._in_folder(path, lambda: self._files.pipe_file(path, body, mode="create"))
        )

    def list(self, folder: str, after: str = "") -> Iterator[FoundFile]:
        """See `Bucket.list`."""
        found: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            found = self._call(lambda: self._files.find(self._path(folder), detail=True))
        for path in sorted(found):
            name = path[len(self._root) + 1 :]
            if name > after:
                yield FoundFile(name, int(found[path]["size"]), _microseconds(found[path]))

    def delete(self, *names: str) -> None:
        """See `Bucket.delete`."""
        for path in map(self._path, names):
            with suppress(FileNotFoundError):
                self._call(partial(self._files.rm_file, path))

    def beside(self, prefix: str) -> FsspecBucket:
        """See `Bucket.beside`."""
        return self._opened(url_beside(self.url, prefix))

    def close(self) -> None:
        """Do nothing: connections are released with the last reference."""

    def _in_folder(self, path: str, write: Callable[[], T]) -> T:
        """Write; if the file system has real folders and this one is missing, create it first."""
        try:
            return self._call(write)
        except FileNotFoundError:
            folder = path.rpartition("/")[0]
            self._call(lambda: self._files.makedirs(folder, exist_ok=True))
            return self._call(write)

    def _call(self, request: Callable[[], T]) -> T:
        check_process(self.url, self._process)
        try:
            return request()
        except PermissionError as error:
            text = without_secrets(str(error), self._secrets)
            raise PermissionError(errno.EACCES, text, self.url) from None
        except (FileNotFoundError, FileExistsError) as error:
            raise type(error)(without_secrets(str(error), self._secrets)) from None
        except Exception as error:
            text = without_secrets(str(error), self._secrets)
            if "unexpected keyword argument" in text:  # clients take their options at first use
                raise InvalidRequestError(_other_name(self.url, text), url=self.url) from None
            raise OSError(text) from None


def _other_name(url: str, problem: object) -> str:
    """A client's complaint, and the scheme that needs no such client."""
    scheme = url.partition("://")[0]
    better = f", or write {_BETTER[scheme]}://" if scheme in _BETTER else ""
    return f"stores at {scheme}://: {problem}{better}"


def _microseconds(info: Mapping[str, Any]) -> int:
    found = next((info[key] for key in _TIME_KEYS if info.get(key) is not None), 0)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    if isinstance(found, datetime):
        return to_microseconds(found if found.tzinfo else found.replace(tzinfo=UTC))
    return round(float(found) * 1e6)
