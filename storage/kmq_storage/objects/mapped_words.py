"""Shared words in a mapped file.

Words are stored through a memoryview of 8-byte words, which is atomic. `struct.pack_into` would
clear the field first, and other processes would see that.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import pyarrow as pa

from kmq_storage.objects import futex
from kmq_storage.objects.file_io import make_folder

_WORD = 8
#: The number of words that every version has; a read-only process needs no others.
_FIRST_WORDS = 8


class MappedWords:
    """A small file of 64-bit words, mapped as shared memory."""

    def __init__(self, path: str, count: int, *, read_only: bool) -> None:
        mapped = _map(path, count * _WORD, read_only=read_only)
        words = memoryview(mapped).cast("Q")
        #: Load and store a word. These are the map's own methods, as they are called very often.
        self.load: Callable[[int], int] = words.__getitem__
        self.store: Callable[[int, int], None] = words.__setitem__
        if len(words) < count:
            self.load = self._load_or_zero
        self._words = words
        self._address = pa.py_buffer(mapped).address

    def _load_or_zero(self, index: int) -> int:
        # A file that was cut, or of a version with fewer words, may be opened read-only.
        return self._words[index] if index < len(self._words) else 0

    def loaded(self, first: int, count: int) -> list[int]:
        """See `SharedWords.loaded`."""
        found = self._words[first : first + count].tolist()
        return found + [0] * (count - len(found))

    def wake(self, index: int) -> None:
        """See `SharedWords.wake`."""
        futex.wake(self._address + index * _WORD)

    def wake_one(self, index: int) -> None:
        """See `SharedWords.wake_one`."""
        futex.wake(self._address + index * _WORD, 1)

    def wait(self, index: int, value: int, timeout: float) -> None:
        """See `SharedWords.wait`."""
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
    """Read the words into memory, since reading a bad page through the map would kill the process.

    Unreadable pages are overwritten with zeros in the shared file; a read-only process gets a
    ValueError instead. This is safe, because zeros have wrong check bits and are never trusted.
    """
    for position in range(0, size, mmap.PAGESIZE):
        try:
            os.pread(fd, mmap.PAGESIZE, position)
        except OSError as error:
            if read_only:
                raise ValueError("the words can't be read") from error
            os.pwrite(fd, bytes(mmap.PAGESIZE), position)
