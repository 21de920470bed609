"""A store in the memory of one process, for tests, notebooks and simulations.

It has the interface of a disk, so the same commit log runs on it.
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
from kmq_storage.objects.files import Bytes, Files, FoundFile, stage_each
from kmq_storage.objects.owner import Owner
from kmq_storage.waking import Sleepers

_stores: dict[str, MemoryDisk] = {}
_stores_lock = threading.Lock()


def memory_disk(name: str, *, read_only: bool = False) -> MemoryDisk:
    """The store with this name, which is shared within the process."""
    with _stores_lock:
        store = _stores.setdefault(name, MemoryDisk(f"memory://{name}"))
    if not read_only:
        return store
    view = copy.copy(store)  # it shares files, words and locks
    view.read_only = True
    return view


class MemoryDisk:
    """A `Disk` with files, locks and words in dictionaries."""

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
        """See `Files.named`; here a file has its own name, as on a disk."""
        return path

    def exists(self, path: str) -> bool:
        """See `Files.exists`."""
        return path in self.files or path in self.logs

    def list(self, folder: str) -> list[str]:
        """See `Files.list`."""
        paths = [*self.files, *self.logs]
        inside = (path.rpartition("/") for path in paths)
        return sorted(name for parent, _, name in inside if parent == folder)

    def walk(self, folder: str) -> Iterator[FoundFile]:
        """See `Files.walk`."""
        for path in sorted([*self.files, *self.logs]):
            if path.startswith(f"{folder}/") or not folder:
                log = self.logs.get(path)
                size, written = (len(self.files[path]), None) if log is None else log.sizes()
                yield FoundFile(path, size, self._modified[path], on_disk=written)

    def walk_shared(self, folder: str) -> Iterator[FoundFile]:
        """None: a clone in memory has own names for shared files."""
        return iter(())

    def now(self) -> int:
        """See `Files.now`."""
        return SYSTEM.now_us()

    def read(self, path: str) -> bytes:
        """See `Files.read`."""
        if path in self._words:
            return b"".join(word.to_bytes(8, "little") for word in self._words[path].loaded())
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        """See `Files.map`; only a log file's map may still change."""
        if path in self.logs:
            return self.logs[path].contents()
        return pa.py_buffer(self.read(path))

    def prefetch(self, places: Iterable[tuple[str, int, int]]) -> bool:
        """False: nothing has to be fetched."""
        return False

    def foreign_file(self) -> None:
        """None: memory has no other use."""

    def afresh(self) -> AbstractContextManager[None]:
        """A block without effect: nothing is cached."""
        return nullcontext()

    def forget(self, path: str) -> bool:
        """See `Files.forget`; always False, as nothing is cached."""
        return False

    def bucket_facts(self) -> None:
        """None: this is no bucket."""

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        """See `Files.publish`."""
        with self._guard:
            if path in self.files:
                return False
            self._modified[path] = self.now()
            self.files[path] = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
            return True

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        """See `Files.stage`."""
        if not self.publish(path, list(buffers), sync=sync):
            raise FileExistsError(path)

    def stage_together(self, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        """See `Files.stage_together`."""
        stage_each(self, files)

    def sync_staged(self, paths: Iterable[str]) -> None:
        """Do nothing: memory needs no sync."""

    def stage_again(self, path: str) -> None:
        """Do nothing: no sync fails."""

    def make_folders(self, *folders: str) -> None:
        """Do nothing: a folder is what is in it."""

    def link(self, path: str, source: Files, source_path: str) -> None:
        """See `Disk.link`."""
        if not isinstance(source, MemoryDisk):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source.url)
        contents = source.read(source_path)
        with self._guard:
            if path not in self.files:
                self._modified[path] = source._modified[source_path]
                self.files[path] = contents

    def open_log(self, path: str, size: int, *, create: bool) -> MemoryLogFile:
        """See `Disk.open_log`."""
        with self._guard:
            if path not in self.logs:
                if not create:
                    raise FileNotFoundError(path)
                self._modified[path] = self.now()
                self.logs[path] = MemoryLogFile(size)
            return self.logs[path]

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        """See `Disk.replace_log`."""
        length = sum(memoryview(buffer).nbytes for buffer in buffers)
        fresh = MemoryLogFile(max(size, length))
        fresh.write_at(0, buffers, length)
        with self._guard:
            self._modified[path] = self.now()
            self.logs[path] = fresh

    def check_there(self) -> None:
        """Do nothing: nobody can move memory."""

    def boot_id(self) -> str:
        """A constant: the store is gone after a reboot."""
        return self.url

    def open_words(self, path: str, count: int) -> MemoryWords:
        """See `Disk.open_words`."""
        with self._guard:
            return self._words.setdefault(path, MemoryWords(count))

    def open_lock(self, path: str, *, seconds: float | None = None) -> MemoryLock:
        """Open or create a lock."""
        with self._guard:
            return self._locks.setdefault(path, MemoryLock())

    def remove(self, *paths: str) -> None:
        """See `Files.remove`."""
        with self._guard:
            for path in paths:
                self.files.pop(path, None)
                self.logs.pop(path, None)
                self._words.pop(path, None)

    def sync_names(self, folder: str) -> None:
        """Do nothing: memory needs no sync."""

    def close(self) -> None:
        """Do nothing: other handles may use the store until the process ends."""


class MemoryLogFile:
    """A log file in anonymous memory, where unwritten pages cost nothing."""

    def __init__(self, size: int) -> None:
        # Private: a forked child keeps the store as it was, and does not see later changes.
        self.data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        #: The end of the written bytes.
        self._end = 0

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        """See `LogFile.write_at`."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            self.data[position : position + len(view)] = view
            position += len(view)
        self._end = max(self._end, position)

    def clear_from(self, position: int) -> None:
        """See `LogFile.clear_from`."""
        self.data[position:] = bytes(len(self.data) - position)
        self._end = min(self._end, position)

    def sync(self) -> None:
        """Do nothing: memory needs no sync."""

    def read(self, position: int, length: int) -> bytes:
        """See `LogFile.read`."""
        return self.data[position : position + length]

    def has_data_from(self, position: int) -> bool:
        """See `LogFile.has_data_from`."""
        return position < self._end

    def sizes(self) -> tuple[int, int]:
        """The length of the file, and how much of it is written."""
        return len(self.data), self._end

    def contents(self) -> pa.Buffer:
        """See `LogFile.contents`."""
        return pa.py_buffer(self.data)


class MemoryWords:
    """Shared words in a list."""

    def __init__(self, count: int) -> None:
        self._words = [0] * count
        self._sleepers = Sleepers()

    def load(self, index: int) -> int:
        """See `SharedWords.load`."""
        return self._words[index]

    def loaded(self, first: int = 0, count: int | None = None) -> list[int]:
        """See `SharedWords.loaded`; without `count`, all words from `first` on."""
        return self._words[first : None if count is None else first + count]

    def store(self, index: int, value: int) -> None:
        """See `SharedWords.store`."""
        self._words[index] = value

    def wake(self, index: int) -> None:
        """See `SharedWords.wake`; threads that wait for other words wake up, too."""
        self._sleepers.wake()

    def wake_one(self, index: int) -> None:
        """Wake all threads, since one of them may wait for another word."""
        self.wake(index)

    def wait(self, index: int, value: int, timeout: float) -> None:
        """See `SharedWords.wait`."""
        # A wake-up without a change ends the wait as well.
        self._sleepers.sleep(lambda: self._words[index] != value, timeout)


class MemoryLock:
    """A lock among the threads of one process."""

    def __init__(self) -> None:
        self._owner = Owner()
        self._beats = 0

    def try_acquire(self) -> bool:
        """See `Lock.try_acquire`."""
        return self._owner.try_become()

    def take_over(self) -> bool:
        """False: the holder lives in this process."""
        return False

    def release(self) -> None:
        """See `Lock.release`."""
        self._owner.thread = 0

    def release_own(self) -> None:
        """See `Lock.release_own`."""
        if self._owner.is_here():
            self.release()

    def is_held(self) -> bool:
        """See `Lock.is_held`."""
        return bool(self._owner.thread)

    def holder(self) -> str:
        """See `Lock.holder`."""
        return "another thread"

    def beat(self) -> None:
        """See `Lock.beat`."""
        self._beats += 1

    def last_beat(self) -> int | None:
        """The number of beats; None when the lock is free."""
        return self._beats if self.is_held() else None

    def discard(self) -> None:
        """Do nothing: the lock costs only some bytes."""
