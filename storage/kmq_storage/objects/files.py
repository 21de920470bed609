"""The interface to the place of a store, a disk or a bucket.

Paths are relative to the store's root and use `/`. Every call may raise `OSError`. The layer above
translates it, since it knows what the error means for a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from kmq_storage.format.identity import BucketFacts

Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer


class Lock(Protocol):
    """A lock among threads and processes, which is freed when its holder dies."""

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""

    def take_over(self) -> bool:
        """Take the lock from its holder; False when a kernel says that the holder lives."""

    def release(self) -> None:
        """Release the lock."""

    def release_own(self) -> None:
        """Release the lock if the calling thread holds it."""

    def is_held(self) -> bool:
        """Whether any thread or process holds the lock."""

    def holder(self) -> str:
        """The holder of the lock, as far as the system can tell, for an error message."""

    def beat(self) -> None:
        """Show that the holder is running, not only alive."""

    def last_beat(self) -> int | None:
        """A number that changes with every beat; None when the lock is free."""

    def discard(self) -> None:
        """Delete all traces of a free lock that will never be used again."""


@contextmanager
def held_if_free(lock: Lock) -> Iterator[bool]:
    """Hold a lock for the block if it is free; the value tells whether it was."""
    is_held = lock.try_acquire()
    try:
        yield is_held
    finally:
        if is_held:
            lock.release()


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file found by a walk through a store."""

    path: str
    #: Bytes.
    length: int
    #: When it was last written, UTC microseconds by the store's clock.
    modified: int
    #: The number of hard links on a disk; each store that shares the file has one.
    names: int = 1
    #: The bytes of a sparse file that are on the disk; None for all of them.
    on_disk: int | None = None


class Files(Protocol):
    """The files of one store. Each file is written once, whole, and never changed."""

    url: str
    read_only: bool

    def named(self, path: str) -> str:
        """The name of a file for messages; a bucket has objects in place of log files."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def list(self, folder: str) -> list[str]:
        """The bare names in a folder, sorted; empty when there is no folder."""

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """The files in a folder and all folders below it, sorted by path."""

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """The files of other stores that this store reads, but must not delete."""

    def now(self) -> int:
        """The time by the store's clock, which also dates files; UTC microseconds."""

    def read(self, path: str) -> bytes:
        """The contents of a small file."""

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        """A whole file to slice from; only bytes that are used are copied or fetched.

        `first`: the bytes (position, length) to fetch first, if the file has to be fetched.
        """

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """Create a file atomically; False when the name is taken."""

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """Create a file with a unique name, which no process reads before a commit names it."""

    def stage_together(self, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        """As `stage`, for small files that are synced together; after an error there is none."""

    def open_lock(self, path: str, *, seconds: float | None = None) -> Lock:
        """Open or create a lock.

        `seconds`: in a bucket, where no kernel tells, a holder without a beat for this long counts
        as dead.
        """

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """Begin to fetch parts of files (path, position, length) that will be mapped soon.

        False where nothing needs to be fetched.
        """

    def afresh(self) -> AbstractContextManager[None]:
        """A block in which nothing is served from a cache that was filled before it began."""

    def forget(self, path: str) -> bool:
        """Drop a file with wrong bytes from the cache, so that it is fetched again.

        False on a disk, where nothing is cached.
        """

    def bucket_facts(self) -> BucketFacts | None:
        """Facts about its bucket that a new store must know, found by a probe; None on a disk."""

    def foreign_file(self) -> str | None:
        """A file that shows that the folder has another use (no place for a store), or None."""

    def remove(self, *paths: str) -> None:
        """Delete files durably, in any order; missing files are ignored."""

    def close(self) -> None:
        """Release files, maps and locks."""


def stage_each(files: Files, new: Iterable[tuple[str, Iterable[Bytes]]]) -> None:
    """`Files.stage_together`, where a file that is there is durable."""
    staged: list[str] = []
    with none_after_an_error(files, staged):
        for path, buffers in new:
            files.stage(path, buffers, sync=True)
            staged.append(path)


@contextmanager
def none_after_an_error(files: Files, staged: Sequence[str]) -> Iterator[None]:
    """A block that stages files; after an error they are removed."""
    try:
        yield
    except Exception:
        with suppress(OSError):
            files.remove(*staged)
        raise
