"""Buckets of S3, Google and Azure through obstore (the extra `cloud`).

Conditional PUTs use a separate client that never retries: a hidden retry of a PUT whose answer was
lost would report our own object as another writer's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn, TypeVar

import pyarrow as pa

from kmq_storage.errors import InvalidRequestError, KmqError
from kmq_storage.model import to_microseconds
from kmq_storage.objects.bucket import (
    Fetched,
    Put,
    head_of,
    joined_bytes,
    put_outcome,
    url_beside,
    views_of,
)
from kmq_storage.objects.credentials import (
    check_process,
    obstore_options,
    secrets_of,
    without_secrets,
)
from kmq_storage.objects.files import Bytes, FoundFile
from kmq_storage.objects.storage_options import (
    check_client,
    check_endpoint,
    unknown_option,
    with_client_options,
)

SCHEMES = ("s3", "gs", "az")

#: A request that takes longer than this has an unknown outcome.
_TIMEOUT = timedelta(seconds=30)
#: Reads are retried; a server that is down for longer is an error for the caller.
_READ_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}
_MULTIPART_BYTES = 16 * 1024 * 1024
#: obstore's message when Google's server does not know the upload; other servers' errors become
#: FileNotFoundError.
_NO_SUCH_UPLOAD = "404 Not Found"
#: How often an upload in parts is tried.
_UPLOADS = 3
#: obstore's messages when a server did not answer with the requested range: the object ends before
#: it (or is empty), or the server sent the whole object or another range.
_NO_SUCH_RANGE = (
    "416 Range Not Satisfiable",  # the number alone may be in names, ports and durations, too
    "Wanted range",
    "non-partial response",
    "Requested ",
)

#: Where clients ask for credentials when none are given: the cloud's service for its machines.
_LAST_ASKED = "://169.254.169.254/"

#: The process that opened a bucket first. In processes forked from it, obstore's clients hang, as
#: their threads do not exist there.
_FIRST_USER: dict[str, int] = {}

T = TypeVar("T")


def open_obstore(url: str, options: Mapping[str, Any]) -> ObstoreBucket:
    """The bucket at an s3, gs or az URL; InvalidRequestError when it can't be used."""
    try:
        import obstore
    except ImportError:
        scheme = url.partition(":")[0]
        raise InvalidRequestError(
            f"stores at {scheme}:// need obstore: pip install 'kmq-spark[cloud]'", url=url
        ) from None
    check_process(url, _FIRST_USER.setdefault("pid", os.getpid()))
    given, client = client_of(options)
    client = {"timeout": _TIMEOUT, **client}
    secrets = secrets_of(options)
    from_url: Callable[..., Any] = obstore.store.from_url  # the options differ by scheme
    try:
        reading = from_url(url, client_options=client, retry_config=_READ_RETRIES, **given)
        creating = from_url(url, client_options=client, retry_config={"max_retries": 0}, **given)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = without_secrets(str(error), secrets)
        if unknown := unknown_option(reason):
            raise unknown from None
        raise InvalidRequestError(f"store {url} can't be opened: {reason}", url=url) from None
    return ObstoreBucket(
        url, reading, creating, secrets, lambda other: open_obstore(other, options)
    )


def client_of(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options under obstore's names, and the options of its HTTP client."""
    given = with_client_options(obstore_options(options))
    check_client(given)
    client = dict(given.pop("client_options", {}))
    endpoint = _endpoint(given)
    if endpoint:
        check_endpoint("endpoint", endpoint)
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    return given, client


def _endpoint(options: Mapping[str, Any]) -> str:
    names = ("endpoint", "aws_endpoint", "aws_endpoint_url", "azure_storage_endpoint")
    given = next((str(options[name]) for name in names if options.get(name)), "")
    return given or os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", ""))


class ObstoreBucket:
    """A prefix of a bucket; its client `reading` retries, and `creating` never does."""

    def __init__(
        self,
        url: str,
        reading: Any,
        creating: Any,
        secrets: frozenset[str],
        opened: Callable[[str], ObstoreBucket],
    ) -> None:
        self.url = url
        self._reading = reading
        self._creating = creating
        self._secrets = secrets
        self._opened = opened
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"ObstoreBucket({self.url!r})"

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """See `Bucket.get`."""
        return self._call(name, lambda: self._get(name, start, length))

    def _get(self, name: str, start: int, length: int | None) -> Fetched:
        try:
            found = self._reading.get(name, options=_range(start, length))
        except Exception as error:
            if not any(text in str(error) for text in _NO_SUCH_RANGE):
                raise
            return _part_of_whole(self._reading.get(name), start, length)
        return Fetched(_bytes_of(found), int(found.meta["size"]))

    def modified(self, name: str) -> int:
        """See `Bucket.modified`."""
        return to_microseconds(self._call(name, lambda: self._reading.head(name))["last_modified"])

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        """See `Bucket.put`."""
        views = views_of(buffers)
        first, is_all = head_of(views, _MULTIPART_BYTES)
        if is_all:
            body = b"".join(first)
            self._call(name, lambda: self._reading.put(name, body, use_multipart=False))
        else:
            # obstore takes the bytes inside its own event loop, where it must not be called again.
            # As the buffers may be read from a bucket, too, they are collected in a file first.
            with TemporaryFile() as file:
                for view in chain(first, views):
                    file.write(view)
                self._call(name, partial(self._upload, name, file))

    def _upload(self, name: str, file: IO[bytes]) -> None:
        """Upload in parts, and try again when the server no longer knows the upload.

        This happens when the upload was completed and the answer was lost. Uploading once more does
        no harm.
        """
        for attempt in range(1, _UPLOADS + 1):
            file.seek(0)
            try:
                self._reading.put(name, file)
                return
            except Exception as error:
                is_gone = isinstance(error, FileNotFoundError) or _NO_SUCH_UPLOAD in str(error)
                if not is_gone or attempt == _UPLOADS:
                    raise

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        """See `Bucket.put_if_absent`."""
        body = _body(buffers)
        create = partial(self._creating.put, name, body, mode="create", use_multipart=False)
        return put_outcome(lambda: self._call(name, create))

    def list(self, folder: str, after: str = "") -> Iterator[FoundFile]:
        """See `Bucket.list`."""
        pages = self._call(folder, lambda: iter(self._reading.list(folder, offset=after or None)))
        while True:
            page = self._call(folder, lambda: next(pages, None))
            if page is None:
                return
            for entry in page:
                if entry["path"] > after:  # some servers ignore the offset
                    modified = to_microseconds(entry["last_modified"])
                    yield FoundFile(entry["path"], entry["size"], modified)

    def delete(self, *names: str) -> None:
        """See `Bucket.delete`; S3 deletes a thousand objects with one request."""
        if not names:
            return
        try:
            self._call(names[0], lambda: self._reading.delete(names))
        except FileNotFoundError:  # some servers stop at a missing object
            for name in names if len(names) > 1 else ():
                self.delete(name)

    def beside(self, prefix: str) -> ObstoreBucket:
        """See `Bucket.beside`."""
        return self._opened(url_beside(self.url, prefix))

    def close(self) -> None:
        """Do nothing: connections are released with the last reference."""

    def _call(self, name: str, request: Callable[[], T]) -> T:
        check_process(self.url, self._process)
        try:
            return request()
        except KmqError:
            raise
        except Exception as error:
            self._translate(name, error)

    def _translate(self, name: str, error: Exception) -> NoReturn:
        """Raise the OSError for an error of obstore, without secrets in its text."""
        from obstore import exceptions

        text = without_secrets(str(error), self._secrets)
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(text) from None
        if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            raise FileExistsError(text) from None
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            raise PermissionError(errno.EACCES, text, f"{self.url}/{name}") from None
        if _LAST_ASKED in text:
            text = f"neither storage_options nor the environment has credentials ({text})"
        raise OSError(text) from None


def _range(start: int, length: int | None) -> Any:
    if length is None:
        return {"range": {"offset": start}} if start else None
    return {"range": (start, start + length)}


def _part_of_whole(found: Any, start: int, length: int | None) -> Fetched:
    """The requested part of an object that had to be fetched whole; the rest is freed."""
    data = _bytes_of(found)
    first = min(start, data.size)
    rest = data.size - first
    part = data.slice(first, rest if length is None else min(length, rest))
    return Fetched(data if part.size == data.size else pa.py_buffer(part.to_pybytes()), data.size)


def _bytes_of(found: Any) -> pa.Buffer:
    data, (start, end) = pa.py_buffer(found.bytes()), found.range
    if data.size != end - start:
        raise OSError(f"the store sent {data.size} of the {end - start} bytes it announced")
    return data


def _body(buffers: Sequence[Bytes]) -> Any:
    return memoryview(buffers[0]).cast("B") if len(buffers) == 1 else joined_bytes(buffers)
