"""Files mapped for reading, which hold no descriptor open.

`mmap.mmap` keeps a duplicate of the descriptor as long as the map lives; a map lives as long as a
record batch over it.

Reading a bad page of the disk through a map kills the process. So bytes are brought into memory
before they are used, by a call that can fail.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
import stat
from contextlib import suppress

import pyarrow as pa

from kmq_storage.objects.file_io import read_apart
from kmq_storage.objects.libc import LIBC

_LOGGER = logging.getLogger(__name__)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_int64]
_madvise = LIBC.madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_mincore = LIBC.mincore
_mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_munmap = LIBC.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value
#: An advice of `madvise` in Linux 5.14 and newer; on others, nothing is brought in ahead.
_POPULATE_READ = 22
#: Its errors for pages that the disk can't read, and for pages lost by faulty memory.
_UNREADABLE = (14, 133)  # EFAULT, EHWPOISON
_FIXED = 0x10
#: What `mincore` tells of a page; threads may share it, as only the time of reading depends on it.
_SEEN = ctypes.create_string_buffer(1)
#: The living maps: size and file by address.
_LIVING: dict[int, tuple[int, str]] = {}


class _Mapping:
    """Keeps a map until it is no longer used."""

    #: 0 until it is mapped, also if a signal interrupts that.
    _size = 0

    def __init__(self, fd: int, size: int, path: str) -> None:
        address = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), path)
        self.address, self._size = address, size
        _LIVING[address] = size, path

    def __del__(self) -> None:
        if self._size:
            _LIVING.pop(self.address, None)
            _munmap(self.address, self._size)


def mapped(fd: int, size: int, path: str) -> pa.Buffer:
    """The first bytes of a file, as they are now and will be; the descriptor may be closed."""
    if not size:
        return pa.py_buffer(b"")
    mapping = _Mapping(fd, size, path)
    return pa.foreign_buffer(mapping.address, size, mapping)


def mapped_file(path: str) -> pa.Buffer:
    """A whole file, as `mapped` gives it; a folder in its place is no file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise FileNotFoundError(errno.ENOENT, "a folder stands in its place", path)
        return mapped(fd, found.st_size, path)
    finally:
        os.close(fd)


def is_mapped(contents: pa.Buffer) -> bool:
    """Whether these bytes are in a map, and not in memory of the process."""
    return bool(_places(contents.address))


def is_readable(contents: pa.Buffer) -> bool:
    """Bring these bytes of a map into memory; returns whether the disk can read them."""
    first, length = _pages(contents)
    if not length or not _madvise(first, length, _POPULATE_READ):  # the hot path
        return True
    if _is_readable(first, length):
        return True
    _read_apart(first, length)
    return _is_readable(first, length)


def being_read(contents: pa.Buffer) -> pa.Buffer:
    """Begin to read these bytes of a map from the disk, unless the first of them are in memory.

    So bytes at random places cost a read of their size, and several such reads come together. Else
    the kernel reads far ahead, as for one who goes on: here 8 MiB.
    """
    if isinstance(contents, pa.Buffer):
        first, length = _pages(contents)
        if length and not _mincore(first, mmap.PAGESIZE, _SEEN) and not _SEEN[0][0] & 1:
            _madvise(first, length, mmap.MADV_WILLNEED)
    return contents


def brought_in(contents: pa.Buffer) -> pa.Buffer:
    """Bring these bytes of an immutable file into memory, so that they can be read safely.

    Bytes that the disk can't read become zeros as long as the map lives; their checksum is then
    wrong. Bytes in a bucket stay as they are, and are fetched when they are used.
    """
    if isinstance(contents, pa.Buffer) and not is_readable(contents):
        _blank(*_pages(contents))
    return contents


def _pages(contents: pa.Buffer) -> tuple[int, int]:
    """The address of the first page that these bytes are in, and the length of all pages."""
    address, size = contents.address, contents.size
    first = address - address % mmap.PAGESIZE
    return first, -(-(address + size - first) // mmap.PAGESIZE) * mmap.PAGESIZE if size else 0


def _is_readable(first: int, length: int) -> bool:
    failed = _madvise(first, length, _POPULATE_READ)
    return not failed or ctypes.get_errno() not in _UNREADABLE


def _blank(first: int, length: int) -> None:
    """Replace unreadable pages by zeros, and no others."""
    if _is_readable(first, length):
        return
    if length > mmap.PAGESIZE:
        half = length // mmap.PAGESIZE // 2 * mmap.PAGESIZE
        _blank(first, half)
        _blank(first + half, length - half)
        return
    for position, path in _places(first):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED
        LIBC.mmap(first, length, mmap.PROT_READ, flags, -1, 0)
        _LOGGER.warning(
            "the disk can't read bytes %d to %d of %s", position, position + length, path
        )


def _read_apart(first: int, length: int) -> None:
    """Bring readable pages beside unreadable ones into memory."""
    for position, path in _places(first):
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                read_apart(fd, position, length)
            finally:
                os.close(fd)


def _places(first: int) -> list[tuple[int, str]]:
    """The position and file of an address in a map; empty for other memory."""
    living = list(_LIVING.copy().items())  # a copy, as garbage collection may remove some
    return [(first - at, path) for at, (size, path) in living if at <= first < at + size]
