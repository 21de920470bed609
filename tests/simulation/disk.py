"""A disk with the contract of `Disk` that forgets what was not synced, as badly as it may.

The page cache and the disk are kept apart per file. At a crash each 512-byte sector of unsynced
log writes, each unsynced staged file and each removed name survives or not by itself, and the
hint page has any state that it ever had.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kmq_storage.objects.files import Bytes, FoundFile
from tests.simulation.inode import Inode
from tests.simulation.scheduler import Scheduler, Task
from tests.support.nothing_fetched import NothingFetched

_SNAPSHOTS = 40
#: How often a look at a file goes on at once, without a change of tasks.
_STAY = 0.9
#: How often a process does not live to see that its sync failed.
_DIES_OF_IT = 0.1


@dataclass
class Faults:
    """How often things go wrong, as probabilities per call."""

    sync: float = 0.0
    full: float = 0.0
    garbage: float = 0.0
    #: Whether a failed sync may also drop pages from the cache, so that reads show old bytes.
    drop_pages: bool = True


class SimulatedDisk(NothingFetched):
    """Files, words and locks of one simulated machine; every call is a place to change tasks.

    The bytes of a file and its name come to disk by themselves: what was not synced survives a
    crash or not, each apart from the other.
    """

    read_only, url = False, "simulated://machine"
    named = staticmethod(str)

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        self.scheduler = scheduler
        self.rng = scheduler.rng
        self.faults = faults
        self.files: dict[str, Inode] = {}
        #: Names that a crash may take, and files that one may bring back.
        self._unsynced_names: set[str] = set()
        self._removed: dict[str, Inode] = {}
        self._words: dict[str, SimulatedWords] = {}
        self._locks: dict[str, SimulatedLock] = {}
        #: Told of each file before it is removed.
        self.watch_removal: Callable[[str], None] = lambda path: None
        self.boots = 0
        #: How many calls failed on purpose.
        self.failed = 0

    def crash(self) -> None:
        """Power cut: only what is on disk is left, and what happened to get there."""
        for path, inode in self._removed.items():
            if self.rng.random() < 0.5:
                self.files.setdefault(path, inode)
        survivors = {
            path: inode.crash(self.rng)
            for path, inode in sorted(self.files.items())
            if not (path in self._unsynced_names and self.rng.random() < 0.5)
        }
        self.files, self._removed, self._locks = survivors, {}, {}
        self._unsynced_names.clear()
        for words in self._words.values():
            words.crash(self.rng)
        self.boots += 1

    def attempt(self, chance: float, code: int, inode: Inode | None = None) -> None:
        """Pause, then fail with this chance."""
        self.scheduler.pause()
        if self.rng.random() < self.faults.garbage:
            for words in self._words.values():
                words.scribble(self.rng)
        if self.rng.random() < chance:
            if inode is not None:
                inode.fail(self.rng, drop_pages=self.faults.drop_pages)
            self.failed += 1
            if inode is not None and self.rng.random() < _DIES_OF_IT:
                self.scheduler.kill()  # it hung in there for long, and somebody ended it
            raise OSError(code, "injected")

    def exists(self, path: str) -> bool:
        self.scheduler.pause(stay=_STAY)
        return path in self.files

    def list(self, folder: str) -> list[str]:
        self.scheduler.pause()
        inside = (path.rpartition("/") for path in self.files)
        return sorted(name for parent, _, name in inside if parent == folder)

    def walk(self, folder: str) -> Iterator[FoundFile]:
        self.scheduler.pause()
        below = f"{folder}/" if folder else ""
        for path in sorted(path for path in self.files if path.startswith(below)):
            if path in self.files:
                inode = self.files[path]
                yield FoundFile(path, len(inode.data), inode.modified)

    def now(self) -> int:
        return int(self.scheduler.clock * 1e6)

    def _inode(self, path: str) -> Inode:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def read(self, path: str) -> bytes:
        return bytes(self.map(path))

    def map(self, path: str, first: tuple[int, int] = (0, 0)) -> pa.Buffer:
        self.scheduler.pause(stay=_STAY)
        return pa.py_buffer(self._inode(path).data)

    def publish(self, path: str, buffers: Sequence[Bytes], *, sync: bool) -> bool:
        temporary = f"{path}.{self.rng.getrandbits(32):08x}.tmp"
        self.attempt(self.faults.full, errno.ENOSPC)
        inode = self._new(temporary, Inode(_joined(buffers), stable=False))
        try:
            if sync:
                self.attempt(self.faults.sync, errno.EIO, inode)
                inode.sync()
            self.scheduler.pause()  # who is killed here leaves the temporary file
        except OSError:
            del self.files[temporary]
            raise
        appeared = path not in self.files
        if appeared:
            self._new(path, inode)
        del self.files[temporary]
        if appeared and sync:
            self.sync_names(_folder(path))
        return appeared

    def _new(self, path: str, inode: Inode) -> Inode:
        """Show a file; its name is on disk when its folder was synced."""
        inode.modified = self.now()
        self.files[path] = inode
        self._unsynced_names.add(path)
        return inode

    def stage(self, path: str, buffers: Iterable[Bytes], *, sync: bool) -> None:
        if sync:
            self.stage_together([(path, buffers)])
        else:
            self._staged(path, buffers)

    def stage_together(self, files: Sequence[tuple[str, Iterable[Bytes]]]) -> None:
        staged: dict[str, Inode] = {}
        try:
            for path, buffers in files:
                staged[path] = self._staged(path, buffers)
            for inode in staged.values():
                self.attempt(self.faults.sync, errno.EIO, inode)
                inode.sync()
            for folder in sorted({*map(_folder, staged)}):
                self.sync_names(folder)
        except Exception:
            for path in staged:
                self.files.pop(path, None)
            raise

    def _staged(self, path: str, buffers: Iterable[Bytes]) -> Inode:
        assert path not in self.files, "ids are unique"
        contents = _joined(list(buffers))
        if self.rng.random() < 0.2:  # seen when its half is written
            self._new(path, Inode(contents[: len(contents) // 2], stable=False))
            self.scheduler.pause()
        try:
            self.attempt(self.faults.full, errno.ENOSPC)
        except OSError:
            self.files.pop(path, None)
            raise
        return self._new(path, Inode(contents, stable=False))

    def sync_staged(self, paths: Iterable[str]) -> None:
        for path in sorted(paths):
            inode = self._inode(path)
            self.attempt(self.faults.sync, errno.EIO, inode)
            inode.sync()
            self.sync_names(_folder(path))

    def stage_again(self, path: str) -> None:
        data = bytes(self._inode(path).data)
        self.attempt(self.faults.full, errno.ENOSPC)
        self._new(path, Inode(data, stable=True))
        self._unsynced_names.discard(path)

    def open_log(self, path: str, size: int, *, create: bool) -> SimulatedLogFile:
        self.scheduler.pause()
        if create and path not in self.files:
            self.attempt(self.faults.full, errno.ENOSPC)
            self._new(path, Inode(bytes(size), stable=True))
            self.sync_names(_folder(path))
        return SimulatedLogFile(self, self._inode(path))

    def replace_log(self, path: str, size: int, buffers: Sequence[Bytes]) -> None:
        self.attempt(self.faults.full, errno.ENOSPC)
        self._new(path, Inode(_joined(buffers).ljust(size, b"\0"), stable=True))
        self._unsynced_names.discard(path)
        self._removed.pop(path, None)
        self.sync_names(_folder(path))

    def check_there(self) -> None:
        pass

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def open_words(self, path: str, count: int) -> SimulatedWords:
        return self._words.setdefault(path, SimulatedWords(self.scheduler, count))

    def open_lock(self, path: str, *, seconds: float | None = None) -> SimulatedLock:
        return self._locks.setdefault(path, SimulatedLock(self.scheduler))

    def remove(self, *paths: str) -> None:
        there = [path for path in paths if self._unlink(path)]
        for folder in sorted({*map(_folder, there)}):
            self.sync_names(folder)

    def _unlink(self, path: str) -> bool:
        self.scheduler.pause()
        if path not in self.files:
            return False
        self.watch_removal(path)
        self._removed[path] = self.files.pop(path)
        return True

    def sync_names(self, folder: str) -> None:
        self.scheduler.pause()
        inside = {
            path for path in (*self._unsynced_names, *self._removed) if _folder(path) == folder
        }
        self._unsynced_names -= inside
        for path in inside:
            self._removed.pop(path, None)

    def close(self) -> None:
        pass


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


class SimulatedLogFile:
    """A log file: a write is seen in two parts, and dies between them."""

    def __init__(self, disk: SimulatedDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        data = _joined(buffers)
        assert len(data) == length
        middle = self._disk.rng.randrange(len(data) + 1)
        self._disk.attempt(0.0, 0)
        self._inode.write(position, data[:middle])
        self._disk.attempt(self._disk.faults.full, errno.ENOSPC)
        self._inode.write(position + middle, data[middle:])
        self._disk.scheduler.pause()

    def clear_from(self, position: int) -> None:
        self._disk.scheduler.pause()
        self._inode.write(position, bytes(len(self._inode.data) - position))

    def sync(self) -> None:
        inode = self._inode
        self._disk.attempt(self._disk.faults.sync, errno.EIO, inode)
        inode.sync()
        self._disk.scheduler.pause()

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._inode.data[position : position + length])

    def has_data_from(self, position: int) -> bool:
        return any(self._inode.data[position:])

    def contents(self) -> pa.Buffer:
        return pa.py_buffer(self._inode.data)


class SimulatedWords:
    """The hint page; a crash brings back any earlier state of it, or zeros."""

    def __init__(self, scheduler: Scheduler, count: int) -> None:
        self._scheduler = scheduler
        self._words = [0] * count
        self._snapshots = [[0] * count]

    def load(self, index: int) -> int:
        self._scheduler.pause(stay=0.95)
        return self._words[index]

    def loaded(self, first: int, count: int) -> list[int]:
        return [self.load(index) for index in range(first, first + count)]

    def store(self, index: int, value: int) -> None:
        self._scheduler.pause()
        self._words[index] = value
        self._snapshots = [self._snapshots[0], *self._snapshots[-_SNAPSHOTS:], list(self._words)]

    def wake(self, index: int) -> None: ...

    wake_one = wake

    def wait(self, index: int, value: int, timeout: float) -> None:
        if self._words[index] == value:
            self._scheduler.pause(min(timeout, 1e-3), stay=0.0)

    def crash(self, rng: random.Random) -> None:
        self._words = list(rng.choice(self._snapshots[-_SNAPSHOTS:] + self._snapshots[:1]))
        self._snapshots = [[0] * len(self._words), list(self._words)]

    def scribble(self, rng: random.Random) -> None:
        kind = rng.randrange(3)
        self._words = [(0, 2**64 - 1, rng.getrandbits(64))[kind]] * len(self._words)


class SimulatedLock:
    """A kernel lock: the death of its holder frees it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Task | None = None
        self._beats = 0

    def try_acquire(self) -> bool:
        self._scheduler.pause()
        if self._holder is not None and not self._holder.dead:
            return False
        self._holder = self._scheduler.running or Task("setup", lambda: None)
        return True

    def take_over(self) -> bool:
        return False

    def release(self) -> None:
        running = self._scheduler.running
        if running is None or not running.dead:  # a process that ended released it long ago
            self._holder = None
        self.release_own()

    def release_own(self) -> None:
        self._holder = None if self._holder is self._scheduler.running else self._holder

    def is_held(self) -> bool:
        if not self.try_acquire():
            return True
        self.release()
        return False

    def holder(self) -> str:
        return self._holder.name if self._holder else "nobody"

    def beat(self) -> None:
        self._beats += 1

    def last_beat(self) -> int | None:
        self._scheduler.pause()
        return self._beats if self._holder is not None and not self._holder.dead else None

    def discard(self) -> None: ...


def _joined(buffers: Sequence[Bytes]) -> bytes:
    return b"".join(map(bytes, map(memoryview, buffers)))
