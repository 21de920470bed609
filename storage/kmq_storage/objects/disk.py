"""What the commit log needs of a disk: a small contract that every backend passes.

Paths are relative to the store's root and use `/`. Every call may raise `OSError`; the
layer above knows what that means for a commit and translates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer


class Lock(Protocol):
    """A lock among threads and processes that the death of its holder frees."""

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""

    def release(self) -> None:
        """Give the lock back."""

    def holder(self) -> str:
        """Who holds the lock, as far as the system can tell, for an error message."""


class LogFile(Protocol):
    """A file of fixed size that grows by being filled, never by changing its size."""

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        """Write the buffers (`length` bytes) one after another; all of it or an OSError."""

    def clear_from(self, position: int) -> None:
        """Overwrite whatever stands at and after the position with zeros."""

    def sync(self) -> None:
        """Return when everything written before the call is on disk."""

    def contents(self) -> pa.Buffer:
        """The whole file, mapped: later writes show up in the same buffer."""


class SharedWords(Protocol):
    """A page of 64-bit words shared by all processes; loads and stores are atomic."""

    def load(self, index: int) -> int:
        """The word at this index."""

    def store(self, index: int, value: int) -> None:
        """Set the word at this index."""

    def wake(self, index: int) -> None:
        """Wake everybody who waits for this word to change."""

    def wake_one(self, index: int) -> None:
        """Wake at least one of those who wait for this word to change."""

    def wait(self, index: int, value: int, timeout: float) -> None:
        """Sleep until the word differs from the value or the timeout (seconds) ends."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a walk through a store met."""

    path: str
    #: Bytes.
    length: int
    #: When it was last written, UTC microseconds by the store's clock.
    modified: int


class Disk(Protocol):
    """A folder that holds one store."""

    url: str
    read_only: bool

    def exists(self, path: str) -> bool:
        """Whether the file is there."""

    def list(self, folder: str) -> list[str]:
        """The bare names in a folder, sorted; none when the folder is missing."""

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """The files in a folder and the folders below it, by path; none when it is missing."""

    def now(self) -> int:
        """The time by the clock that files are dated with, UTC microseconds."""

    def read(self, path: str) -> bytes:
        """A whole small file."""

    def map(self, path: str) -> pa.Buffer:
        """A whole file without copying; only a log file may still change, in place."""

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """Create a file whole or not at all; False when the name is taken."""

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """Create a file under a name nobody else uses and nobody reads before a commit names it."""

    def sync_staged(self, paths: Iterable[str]) -> None:
        """Bring files to disk that were staged without sync, and their names."""

    def stage_again(self, path: str) -> None:
        """Write a staged file whose sync failed into fresh blocks, synced, under the same name."""

    def open_log(self, path: str, size: int, *, create: bool) -> LogFile:
        """Open a log file, or create it with this size if it is missing."""

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        """Put a log file that begins with these bytes, synced, in place of the one of this name.

        It appears whole; handles on the old one keep the old bytes.
        """

    def boot_id(self) -> str:
        """Differs after every start of the machine: what was only in memory is gone then."""

    def open_words(self, path: str, count: int) -> SharedWords:
        """Open or create a page of shared words; zeros when new."""

    def open_lock(self, path: str) -> Lock:
        """Open or create a lock."""

    def remove(self, path: str) -> None:
        """Delete a file, so that no crash brings it back; nothing happens when it is missing."""

    def sync_names(self, folder: str) -> None:
        """Bring to disk which files were made and removed in a folder, whoever did it."""

    def close(self) -> None:
        """Give back what the system lent: files, maps, locks."""
