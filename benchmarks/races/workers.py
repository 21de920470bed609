"""Who runs a race: processes with threads, of which each times its calls and nothing else."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Self, TypeVar

_Task = TypeVar("_Task")
#: How the folders of races begin.
_FOLDER = "kmq-race-"
#: A call that took so long (seconds) may have taken memory, too.
_LARGE = 0.01
#: Seconds between two looks at the memory of a long one.
_LOOK_EVERY = 0.05


@dataclass(frozen=True)
class Took:
    """What calls took, and the anonymous memory of their process: all above the page cache."""

    seconds: float
    #: Of the threads that called (of sorting: of all); less than the time on a busy machine.
    cpu: float
    memory: int


class Meter:
    """Adds up the seconds of calls, and looks at the memory behind each."""

    def __init__(self, cpu_clock: Callable[[], float] = time.thread_time) -> None:
        self._cpu_clock = cpu_clock
        self._seconds, self._cpu, self._memory = 0.0, 0.0, 0

    @contextmanager
    def timing(self) -> Iterator[None]:
        """What is done here counts."""
        cpu, began = self._cpu_clock(), time.perf_counter()  # a look at the first may take 10 us
        yield
        seconds = time.perf_counter() - began
        self._seconds += seconds
        self._cpu += self._cpu_clock() - cpu
        if seconds > _LARGE:
            self._look()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the memory while this is done, which may give back what it takes."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_LOOK_EVERY):
                self._look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def took(self) -> Took:
        """All of it so far."""
        self._look()
        return Took(self._seconds, self._cpu, self._memory)

    def _look(self) -> None:
        self._memory = max(self._memory, anonymous_memory())


def anonymous_memory() -> int:
    """The bytes of this process that are no file's: what it has above the page cache."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def together(found: Iterable[Took]) -> Took:
    """Those that ran at once: the slowest, the CPU time of all, the most memory that one had."""
    seconds, cpu, memory = zip(*((t.seconds, t.cpu, t.memory) for t in found), strict=True)
    return Took(max(seconds), sum(cpu), max(memory))


def in_threads(work: Callable[[_Task], Took], tasks: Sequence[_Task]) -> Took:
    """Do all tasks in this process, a thread for each."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return together(pool.map(work, tasks))


def _end_with_who_began() -> None:
    """End this process when the one that made it is killed: nobody else would."""
    parent = parent_process()
    assert parent is not None, "a worker has one"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Crew:
    """Processes that do what they are told, with so many threads each."""

    def __init__(self, processes: int, threads: int) -> None:
        self._pool = ProcessPoolExecutor(
            processes, get_context("spawn"), initializer=_end_with_who_began
        )
        self._threads = threads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def do(self, work: Callable[[_Task], Took], tasks: Sequence[_Task]) -> Took:
        """Do all tasks at once."""
        shares = [tasks[at : at + self._threads] for at in range(0, len(tasks), self._threads)]
        return together(self._pool.map(in_threads, repeat(work), shares))


def existing_folder(path: str) -> str:
    """The folder that an option names; an error of its parser unless stores can be made there."""
    if not (os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)):
        raise ArgumentTypeError(f"{path} is no folder that can be written to")
    return path


@contextmanager
def own_folder(parent: str | None) -> Iterator[str]:
    """A folder that goes with the race, or with the next one there if this one is killed."""
    for left in Path(parent or gettempdir()).glob(f"{_FOLDER}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=_FOLDER, dir=parent) as folder, _locked(Path(folder)):
        yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder, as long as the process lives; OSError when somebody else does."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def stored_bytes(folder: str) -> int:
    """The bytes of all files of a store, as the disk counts them."""
    return sum(file.stat().st_blocks * 512 for file in Path(folder).rglob("*") if file.is_file())
