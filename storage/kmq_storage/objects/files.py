"""What a store needs of the place it is in, whether that is a disk or a bucket.

Paths are relative to the store's root and use `/`. Every call may raise `OSError`; the
layer above knows what that means for a commit and translates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from kmq_storage.format.identity import BucketFacts

Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer


class Lock(Protocol):
    """A lock among threads and processes that the death of its holder frees."""

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""

    def take_over(self) -> bool:
        """Take the lock from its holder; False where a kernel tells that this one lives."""

    def release(self) -> None:
        """Give the lock back."""

    def release_own(self) -> None:
        """Give the lock back if the calling thread took it and has not given it back."""

    def is_held(self) -> bool:
        """Whether somebody holds the lock now."""

    def holder(self) -> str:
        """Who holds the lock, as far as the system can tell, for an error message."""

    def beat(self) -> None:
        """Show that the holder lives: only a process that runs does."""

    def last_beat(self) -> int | None:
        """A number that changes with every beat; None when nobody holds the lock."""

    def discard(self) -> None:
        """Leave no trace of a lock that nobody holds and nobody will take again."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a walk through a store met."""

    path: str
    #: Bytes.
    length: int
    #: When it was last written, UTC microseconds by the store's clock.
    modified: int
    #: By how many names a disk knows it: stores that share it have one each.
    names: int = 1


class Files(Protocol):
    """The files of one store: each is written once, whole, and never changed."""

    url: str
    read_only: bool

    def named(self, path: str) -> str:
        """What a file is called where somebody looks for it: a bucket has objects for log files."""

    def exists(self, path: str) -> bool:
        """Whether the file is there."""

    def list(self, folder: str) -> list[str]:
        """The bare names in a folder, sorted; none when the folder is missing."""

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """The files in a folder and the folders below it, by path; none when it is missing."""

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """The files of other stores that are read here, too, but are not ours to delete."""

    def now(self) -> int:
        """The time by the clock that files are dated with, UTC microseconds."""

    def read(self, path: str) -> bytes:
        """A whole small file."""

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        """A whole file to slice from, without copying or fetching more than is looked at.

        Where it is fetched, with the bytes (position, length) that are looked at first.
        """

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """Create a file whole or not at all; False when the name is taken."""

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """Create a file under a name nobody else uses and nobody reads before a commit names it."""

    def open_lock(self, path: str, *, seconds: float | None = None) -> Lock:
        """Open or create a lock.

        `seconds`: who shows no life for so long counts as dead, where no kernel tells.
        """

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """Parts of files (path, position, length) that will be mapped soon: fetch them ahead.

        False where nothing needs to be fetched.
        """

    def afresh(self) -> AbstractContextManager[None]:
        """While this lasts, nothing is taken for what is there that was read before it began."""

    def forget(self, path: str) -> bool:
        """Have a file fetched once more, its bytes don't prove themselves; False where it can't be.

        On a disk what is looked at is what is there.
        """

    def bucket_facts(self) -> BucketFacts | None:
        """What a new store should know of its bucket, found out by trying; None on a disk."""

    def foreign_file(self) -> str | None:
        """A file beside which no store should be made: a folder's that has another use; or None."""

    def remove(self, *paths: str) -> None:
        """Delete files, in any order, so that no crash brings them back; missing ones are none."""

    def close(self) -> None:
        """Give back what the system lent: files, maps, locks."""
