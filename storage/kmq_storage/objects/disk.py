"""The interface to a disk: what the commit log needs beyond `Files`.

Every call may raise `OSError`. The layer above translates it, since it knows what the error means
for a commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from kmq_storage.objects.files import Bytes, Files


class LogFile(Protocol):
    """A log file. It is created with its full size and filled later, so its size never changes.

    A shorter file was cut from outside. It keeps its size, which tells so.
    """

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        """Write the buffers (`length` bytes) one after another; all of it or an OSError."""

    def clear_from(self, position: int) -> None:
        """Overwrite everything from the position on with zeros."""

    def sync(self) -> None:
        """Return when everything written before the call is on disk."""

    def read(self, position: int, length: int) -> bytes:
        """Read bytes without the map, so that reading unwritten parts takes no memory."""

    def has_data_from(self, position: int) -> bool:
        """Whether there is anything but zeros from the position on."""

    def contents(self) -> pa.Buffer:
        """The whole file, mapped: later writes show up in the same buffer."""


class SharedWords(Protocol):
    """A page of 64-bit words shared by all processes; loads and stores are atomic."""

    def load(self, index: int) -> int:
        """The word at this index."""

    def loaded(self, first: int, count: int) -> list[int]:
        """Some words, each as `load` returns it; zeros behind the end of a file that was cut."""

    def store(self, index: int, value: int) -> None:
        """Set the word at this index."""

    def wake(self, index: int) -> None:
        """Wake all threads that wait for this word to change."""

    def wake_one(self, index: int) -> None:
        """Wake at least one thread that waits for this word to change."""

    def wait(self, index: int, value: int, timeout: float) -> None:
        """Sleep until the word differs from `value`, at most `timeout` seconds."""


class Disk(Files, Protocol):
    """The files of a store on a disk, with log files, shared words and syncing."""

    def sync_staged(self, paths: Iterable[str]) -> None:
        """Sync files that were staged without sync, and their names."""

    def stage_again(self, path: str) -> None:
        """Write a staged file whose sync failed into fresh blocks, synced, under the same name."""

    def make_folders(self, *folders: str) -> None:
        """Create folders for files that will be linked, and sync the folders' names together."""

    def link(self, path: str, source: Files, source_path: str) -> None:
        """Link a file of another store on the same file system into this one; not synced.

        Nothing happens when the name is taken. FileNotFoundError when the file is missing, another
        OSError when the file system has no such links.
        """

    def open_log(self, path: str, size: int, *, create: bool) -> LogFile:
        """Open a log file; with `create`, create it with this size if it is missing."""

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        """Replace or create a log file that begins with these bytes, synced.

        The replacement is atomic. Handles on the old file keep the old bytes.
        """

    def check_there(self) -> None:
        """OSError when the folder was moved or replaced: nobody writes to the opened log now."""

    def boot_id(self) -> str:
        """An id that changes with every boot of the machine, which loses what was not synced."""

    def open_words(self, path: str, count: int) -> SharedWords:
        """Open a page of shared words, or create it with zeros."""

    def sync_names(self, folder: str) -> None:
        """Make created and removed names in a folder durable, whichever process changed them."""
