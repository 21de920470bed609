"""Shared words in a mapped file.

Stores go through a memoryview of 8-byte words: `struct.pack_into` clears the field first, and
other processes see that.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import pyarrow as pa

from kmq_storage.objects import futex
from kmq_storage.objects.file_io import make_folder

_WORD = 8
#: As many as every version has; a read-only process needs no others.
_FIRST_WORDS = 8


class MappedWords:
    """A small file of 64-bit words, mapped shared."""

    def __init__(self, path: str, count: int, *, read_only: bool) -> None:
        mapped = _map(path, count * _WORD, read_only=read_only)
        words = memoryview(mapped).cast("Q")
        #: The word at an index, and setting it: the map's own methods, since all go through here.
        self.load: Callable[[int], int] = words.__getitem__
        self.store: Callable[[int, int], None] = words.__setitem__
        if len(words) < count:
            self.load = self._load_or_zero
        self._words = words
        self._address = pa.py_buffer(mapped).address

    def _load_or_zero(self, index: int) -> int:
        # A file that was cut, or of a version with fewer words, opened to read.
        return self._words[index] if index < len(self._words) else 0

    def loaded(self, first: int, count: int) -> list[int]:
        """Some words, each as `load` gives it; zeros for what the file has not."""
        found = self._words[first : first + count].tolist()
        return found + [0] * (count - len(found))

    def wake(self, index: int) -> None:
        """Wake everybody who waits for this word to change."""
        futex.wake(self._address + index * _WORD)

    def wake_one(self, index: int) -> None:
        """Wake one of those who wait for this word to change."""
        futex.wake(self._address + index * _WORD, 1)

    def wait(self, index: int, value: int, timeout: float) -> None:
        """Sleep until the word differs from the value or the timeout (seconds) ends."""
        futex.wait(self._address + index * _WORD, value, timeout)


def _map(path: str, size: int, *, read_only: bool) -> mmap.mmap:
    if read_only:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    else:
        make_folder(os.path.dirname(path))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if read_only and os.fstat(fd).st_size >= _FIRST_WORDS * _WORD:
            size = min(size, os.fstat(fd).st_size // _WORD * _WORD)
        if not read_only and os.fstat(fd).st_size < size:
            # Real blocks, not a hole: a store into a hole on a full disk kills the process.
            os.posix_fallocate(fd, 0, size) if hasattr(os, "posix_fallocate") else os.ftruncate(
                fd, size
            )
        _bring_in(fd, size, read_only=read_only)
        protection = mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE
        return mmap.mmap(fd, size, prot=protection)
    finally:
        os.close(fd)


def _bring_in(fd: int, size: int, *, read_only: bool) -> None:
    """Have the words in memory: looking through a map at what the disk can't read would kill.

    Pages that can't be read begin anew, in the file that others have mapped; who may not write
    gets a ValueError. No word is trusted that does not prove itself, and zeros don't.
    """
    for position in range(0, size, mmap.PAGESIZE):
        try:
            os.pread(fd, mmap.PAGESIZE, position)
        except OSError as error:
            if read_only:
                raise ValueError("the words can't be read") from error
            os.pwrite(fd, bytes(mmap.PAGESIZE), position)
