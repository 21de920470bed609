"""What the commit log needs of a real disk, beyond what every place of a store has.

Every call may raise `OSError`; the layer above knows what that means for a commit and
translates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from kmq_storage.objects.files import Bytes, Files


class LogFile(Protocol):
    """A file of fixed size that grows by being filled, never by changing its size.

    One that is shorter was cut by somebody else: it keeps the size that tells so.
    """

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        """Write the buffers (`length` bytes) one after another; all of it or an OSError."""

    def clear_from(self, position: int) -> None:
        """Overwrite whatever stands at and after the position with zeros."""

    def sync(self) -> None:
        """Return when everything written before the call is on disk."""

    def read(self, position: int, length: int) -> bytes:
        """These bytes, read without the map: where nothing was written, a look takes no space."""

    def has_data_from(self, position: int) -> bool:
        """Whether anything but zeros stands at or after the position."""

    def contents(self) -> pa.Buffer:
        """The whole file, mapped: later writes show up in the same buffer."""


class SharedWords(Protocol):
    """A page of 64-bit words shared by all processes; loads and stores are atomic."""

    def load(self, index: int) -> int:
        """The word at this index."""

    def loaded(self, first: int, count: int) -> list[int]:
        """Some words, each as `load` gives it; zeros for what a file that was cut has not."""

    def store(self, index: int, value: int) -> None:
        """Set the word at this index."""

    def wake(self, index: int) -> None:
        """Wake everybody who waits for this word to change."""

    def wake_one(self, index: int) -> None:
        """Wake at least one of those who wait for this word to change."""

    def wait(self, index: int, value: int, timeout: float) -> None:
        """Sleep until the word differs from the value or the timeout (seconds) ends."""


class Disk(Files, Protocol):
    """A folder that holds one store, with what only a disk has: log files, words, syncing."""

    def sync_staged(self, paths: Iterable[str]) -> None:
        """Bring files to disk that were staged without sync, and their names."""

    def stage_again(self, path: str) -> None:
        """Write a staged file whose sync failed into fresh blocks, synced, under the same name."""

    def link(self, path: str, source: Files, source_path: str) -> None:
        """Have a file of a store on the same file system, under a name of our own; not synced.

        Nothing happens when the name is taken. FileNotFoundError when the file is missing;
        another OSError where there are no such links.
        """

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

    def sync_names(self, folder: str) -> None:
        """Bring to disk which files were made and removed in a folder, whoever did it."""
