"""A store in the memory of one process: for tests, notebooks and simulations.

It keeps the contract of a real disk, so the same commit log runs on it.
"""

from __future__ import annotations

import copy
import errno
import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa

from kmq_storage.environment import SYSTEM
from kmq_storage.objects.files import Bytes, Files, FoundFile
from kmq_storage.objects.owner import Owner
from kmq_storage.waking import Sleepers

_stores: dict[str, MemoryDisk] = {}
_stores_lock = threading.Lock()


def memory_disk(name: str, *, read_only: bool = False) -> MemoryDisk:
    """The store of this name: there is one per process and name."""
    with _stores_lock:
        store = _stores.setdefault(name, MemoryDisk(f"memory://{name}"))
    if not read_only:
        return store
    view = copy.copy(store)  # the same files, words and locks
    view.read_only = True
    return view


class MemoryDisk:
    """Files, locks and words in dictionaries."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.read_only = False
        self.files: dict[str, bytes] = {}
        self.logs: dict[str, MemoryLogFile] = {}
        self._modified: dict[str, int] = {}
        self._words: dict[str, MemoryWords] = {}
        self._locks: dict[str, MemoryLock] = {}
        self._guard = threading.Lock()

    def named(self, path: str) -> str:
        """The same name: every file is where its path says."""
        return path

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        return path in self.files or path in self.logs

    def list(self, folder: str) -> list[str]:
        """The bare names in a folder, sorted; none when the folder is missing."""
        paths = [*self.files, *self.logs]
        inside = (path.rpartition("/") for path in paths)
        return sorted(name for parent, _, name in inside if parent == folder)

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """The files in a folder and the folders below it, by path; none when it is missing."""
        for path in sorted([*self.files, *self.logs]):
            if path.startswith(f"{folder}/") or not folder:
                size = len(self.files[path]) if path in self.files else len(self.logs[path].data)
                yield FoundFile(path, size, self._modified[path])

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """None: what a clone shares it has under names of its own."""
        return iter(())

    def now(self) -> int:
        """The time by the clock that files are dated with, UTC microseconds."""
        return SYSTEM.now_us()

    def read(self, path: str) -> bytes:
        """A whole small file."""
        if path in self._words:
            return b"".join(word.to_bytes(8, "little") for word in self._words[path].loaded())
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        """A whole file without copying; only a log file may still change, in place."""
        if path in self.logs:
            return self.logs[path].contents()
        return pa.py_buffer(self.read(path))

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """Mapping costs nothing here."""
        return False

    def foreign_file(self) -> None:
        """Nobody else has it."""

    def afresh(self) -> AbstractContextManager[None]:
        """Nothing is kept beside what is there."""
        return nullcontext()

    def forget(self, path: str) -> bool:
        """Nothing is fetched."""
        return False

    def bucket_facts(self) -> None:
        """This is no bucket."""

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """Create a file whole or not at all; False when the name is taken."""
        with self._guard:
            if path in self.files:
                return False
            self._modified[path] = self.now()
            self.files[path] = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
            return True

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """Create a file under a name nobody else uses and nobody reads before a commit names it."""
        if not self.publish(path, list(buffers), sync=sync):
            raise FileExistsError(path)

    def sync_staged(self, paths: Iterable[str]) -> None:
        """Bring files to disk that were staged without sync; memory needs none."""

    def stage_again(self, path: str) -> None:
        """Write a staged file whose sync failed once more; memory needs none."""

    def link(self, path: str, source: Files, source_path: str) -> None:
        """Have a file of another store of this process, under a name of our own."""
        if not isinstance(source, MemoryDisk):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source.url)
        contents = source.read(source_path)
        with self._guard:
            if path not in self.files:
                self._modified[path] = source._modified[source_path]
                self.files[path] = contents

    def open_log(self, path: str, size: int, *, create: bool) -> MemoryLogFile:
        """Open a log file, or create it with this size if it is missing."""
        with self._guard:
            if path not in self.logs:
                if not create:
                    raise FileNotFoundError(path)
                self._modified[path] = self.now()
                self.logs[path] = MemoryLogFile(size)
            return self.logs[path]

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        """Put a log file that begins with these bytes in place of the one of this name."""
        length = sum(memoryview(buffer).nbytes for buffer in buffers)
        fresh = MemoryLogFile(max(size, length))
        fresh.write_at(0, buffers, length)
        with self._guard:
            self._modified[path] = self.now()
            self.logs[path] = fresh

    def boot_id(self) -> str:
        """Differs after every start of the machine: what was only in memory is gone then."""
        return self.url

    def open_words(self, path: str, count: int) -> MemoryWords:
        """Open or create a page of shared words; zeros when new."""
        with self._guard:
            return self._words.setdefault(path, MemoryWords(count))

    def open_lock(self, path: str, *, seconds: float | None = None) -> MemoryLock:
        """Open or create a lock."""
        with self._guard:
            return self._locks.setdefault(path, MemoryLock())

    def remove(self, *paths: str) -> None:
        """Delete files; nothing happens to missing ones."""
        with self._guard:
            for path in paths:
                self.files.pop(path, None)
                self.logs.pop(path, None)
                self._words.pop(path, None)

    def sync_names(self, folder: str) -> None:
        """Bring the names in a folder to disk; memory needs none."""

    def close(self) -> None:
        """The store stays until the process ends: other handles may use it."""


class MemoryLogFile:
    """A log file in anonymous memory: pages that were never written to cost nothing."""

    def __init__(self, size: int) -> None:
        # Private: a forked child has the store as it was, and no part in what comes after.
        self.data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        #: Behind it nothing was written.
        self._end = 0

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        """Write the buffers (`length` bytes) one after another."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self.data[position : position + len(view)] = view
            position += len(view)
        self._end = max(self._end, position)

    def clear_from(self, position: int) -> None:
        """Overwrite whatever stands at and after the position with zeros."""
        self.data[position:] = bytes(len(self.data) - position)
        self._end = min(self._end, position)

    def sync(self) -> None:
        """Return when everything written before the call is on disk."""

    def read(self, position: int, length: int) -> bytes:
        """These bytes."""
        return self.data[position : position + length]

    def has_data_from(self, position: int) -> bool:
        """Whether anything but zeros stands at or after the position."""
        return position < self._end

    def contents(self) -> pa.Buffer:
        """The whole file: later writes show up in the same buffer."""
        return pa.py_buffer(self.data)


class MemoryWords:
    """Shared words in a list."""

    def __init__(self, count: int) -> None:
        self._words = [0] * count
        self._sleepers = Sleepers()

    def load(self, index: int) -> int:
        """The word at this index."""
        return self._words[index]

    def loaded(self, first: int = 0, count: int | None = None) -> list[int]:
        """Some words, each as `load` gives it; or all."""
        return self._words[first : None if count is None else first + count]

    def store(self, index: int, value: int) -> None:
        """Set the word at this index."""
        self._words[index] = value

    def wake(self, index: int) -> None:
        """Wake everybody who waits for this word to change."""
        self._sleepers.wake()

    def wake_one(self, index: int) -> None:
        """Wake everybody: threads that wait for another word are among them."""
        self.wake(index)

    def wait(self, index: int, value: int, timeout: float) -> None:
        """Sleep until the word differs from the value or the timeout (seconds) ends."""
        # A wake-up without a change ends the wait as well.
        self._sleepers.sleep(lambda: self._words[index] != value, timeout)


class MemoryLock:
    """A lock among the threads of one process."""

    def __init__(self) -> None:
        self._owner = Owner()
        self._beats = 0

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        return self._owner.try_become()

    def take_over(self) -> bool:
        """False: who holds it lives in this process."""
        return False

    def release(self) -> None:
        """Give the lock back."""
        self._owner.thread = 0

    def release_own(self) -> None:
        """Give the lock back if this thread has it."""
        if self._owner.is_here():
            self.release()

    def is_held(self) -> bool:
        """Whether somebody holds the lock now."""
        return bool(self._owner.thread)

    def holder(self) -> str:
        """Who holds the lock, as far as the system can tell."""
        return "another thread"

    def beat(self) -> None:
        """Show that the holder lives."""
        self._beats += 1

    def last_beat(self) -> int | None:
        """How often it beat; None when nobody holds the lock."""
        return self._beats if self.is_held() else None

    def discard(self) -> None:
        """The name costs some bytes until the process ends."""
