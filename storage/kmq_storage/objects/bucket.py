"""The interface to an object store: a few calls, which make unknown outcomes explicit.

The first writer that creates a name wins, if the server keeps its promise (`objects.probe` finds
out). Only the answer CREATED proves which writer it was. After any other answer, a writer must read
the object back and compare it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from kmq_storage.objects.files import Bytes, FoundFile


class Put(enum.Enum):
    """The outcome of a put-if-absent."""

    #: The server confirms that this call created the object.
    CREATED = "created"
    #: The server says that the name is taken, by another writer or by this call's first try.
    TAKEN = "taken"
    #: No usable answer (timeout, reset, 5xx, conflict): the object may exist, now or later.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole object, or the requested part of it."""

    data: pa.Buffer
    #: The size of the whole object.
    size: int


class Bucket(Protocol):
    """A prefix of an object store; safe for any number of threads.

    Names are relative to the prefix. FileNotFoundError for a missing object, PermissionError when
    the credentials do not allow the call, OSError for any other failure.
    """

    url: str

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """An object from byte `start` on, at most `length` bytes; fewer at its end."""

    def modified(self, name: str) -> int:
        """When an object was written, UTC microseconds by the store's own clock."""

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        """Write or overwrite an object; only for names that no other writer uses.

        Buffers are taken as they are sent, so a large object is never whole in memory.
        """

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        """Create an object if its name is free; no layer below may retry this.

        It raises only errors after which nothing was written for certain: PermissionError and
        FileNotFoundError (no such bucket).
        """

    def list(self, folder: str, after: str = "") -> Iterator[FoundFile]:
        """The objects below a folder, sorted by name; if `after` is given, only names behind it.

        A listing may have names that do not exist, and miss new ones. It is a hint, not a proof.
        """

    def delete(self, *names: str) -> None:
        """Delete objects, in any order; missing ones are ignored."""

    def beside(self, prefix: str) -> Bucket:
        """The same bucket at another prefix, with the same client and credentials."""

    def close(self) -> None:
        """Release connections."""


def prefix_of(url: str) -> str:
    """The prefix of a URL inside its bucket."""
    return urlsplit(url).path.strip("/")


def url_beside(url: str, prefix: str) -> str:
    """The URL of another prefix of the same bucket."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{prefix}"


def put_outcome(create: Callable[[], object]) -> Put:
    """The outcome of a try to create an object; after an error, nothing was written."""
    try:
        create()
    except FileExistsError:
        return Put.TAKEN
    except (FileNotFoundError, PermissionError):
        raise
    except OSError:
        return Put.UNKNOWN
    return Put.CREATED


def head_of(buffers: Iterator[memoryview], length: int) -> tuple[list[memoryview], bool]:
    """The first buffers, with at least `length` bytes, and whether there were fewer bytes."""
    first, found = [], 0
    while found < length and (view := next(buffers, None)) is not None:
        first.append(view)
        found += len(view)
    return first, found < length


def views_of(buffers: Iterable[Bytes]) -> Iterator[memoryview]:
    """The buffers as bytes, one after another."""
    return (memoryview(buffer).cast("B") for buffer in buffers)


def joined_bytes(buffers: Iterable[Bytes]) -> bytes:
    """The buffers one after another."""
    return b"".join(views_of(buffers))
