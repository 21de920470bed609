"""What kmq needs of an object store: a few calls, with doubt made explicit.

A name is taken or free; whoever creates it first wins, if the server keeps its word
(`objects.probe` finds out). No answer but CREATED proves who wrote, so whoever gets another
one reads the object back and compares.
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
    """What is known after a put-if-absent."""

    #: The server says that this call created the object.
    CREATED = "created"
    #: The server says that the name is taken: by another writer, or by this call's first try.
    TAKEN = "taken"
    #: No usable answer (timeout, reset, 5xx, conflict): the object may be there, or come later.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fetched:
    """An object, or the part of it that was asked for."""

    data: pa.Buffer
    #: Bytes of the whole object.
    size: int


class Bucket(Protocol):
    """A prefix of an object store. Safe for any number of threads.

    Names are relative to the prefix. FileNotFoundError for a missing object, PermissionError
    where the credentials don't reach, OSError for every other failure.
    """

    url: str

    def get(self, name: str, start: int = 0, length: int | None = None) -> Fetched:
        """An object from a byte on, at most `length` bytes; less where it ends before."""

    def modified(self, name: str) -> int:
        """When an object was written, UTC microseconds by the store's own clock."""

    def put(self, name: str, buffers: Iterable[Bytes]) -> None:
        """Write an object, whatever was there; only for names that one writer has alone.

        The buffers are taken as they are sent: a large object is never in memory whole.
        """

    def put_if_absent(self, name: str, buffers: Sequence[Bytes]) -> Put:
        """Create an object if its name is free; never retried by a layer below.

        Raises only what is certain to have written nothing: PermissionError and
        FileNotFoundError (no such bucket).
        """

    def list(self, folder: str, after: str = "") -> Iterator[FoundFile]:
        """The objects below a folder by name, those behind `after` if it is given.

        May show names that nobody put, and may miss new ones: a hint, never a proof.
        """

    def delete(self, *names: str) -> None:
        """Delete objects, in any order; nothing happens to missing ones."""

    def beside(self, prefix: str) -> Bucket:
        """The same bucket at another prefix, with the same client and credentials."""

    def close(self) -> None:
        """Give back connections."""


def prefix_of(url: str) -> str:
    """Where a URL points to inside its bucket."""
    return urlsplit(url).path.strip("/")


def url_beside(url: str, prefix: str) -> str:
    """The URL of another prefix of the same bucket."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{prefix}"


def put_outcome(create: Callable[[], object]) -> Put:
    """What is known after a try to create an object; raises what surely wrote nothing."""
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
    """The first buffers, as many as make up `length` bytes, and whether they are fewer."""
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
