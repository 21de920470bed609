"""System calls on files, with the loops and fallbacks that each of them needs."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice, pairwise
from mmap import PAGESIZE

from kmq_storage.objects.files import Bytes
from kmq_storage.objects.libc import LIBC

#: IOV_MAX on Linux; more buffers than this go in several calls.
_BUFFERS_PER_CALL = 1024
_SYNC_FILE_RANGE_WRITE = 2
#: Errors of a system that does not begin write-back, or not now; the sync then writes the bytes.
_NOT_BEGUN = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EPERM, errno.ENOMEM)


def write_all(fd: int, position: int, buffers: Sequence[Bytes]) -> None:
    """Write all buffers in sequence at the position, repeating partial writes."""
    left = deque(memoryview(buffer) for buffer in buffers if len(buffer))
    while left:
        written = os.pwritev(fd, [*islice(left, _BUFFERS_PER_CALL)], position)
        if written == 0:
            raise OSError(errno.EIO, "the file system wrote nothing")
        position += written
        while left and written >= len(left[0]):
            written -= len(left.popleft())
        if written:
            left[0] = left[0][written:]


def read_all(fd: int, position: int, length: int) -> bytes:
    """Read bytes, as far as the file has them, repeating partial reads."""
    found = os.pread(fd, length, position)
    while len(found) < length and (
        more := os.pread(fd, length - len(found), position + len(found))
    ):
        found += more
    return found


def read_or_zeros(fd: int, position: int, length: int) -> bytes:
    """As `read_all`, with zeros for bytes that the disk can't read."""
    try:
        return read_all(fd, position, length)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    return read_apart(fd, position, length)


def read_apart(fd: int, position: int, length: int) -> bytes:
    """Read bytes page by page, with zeros for pages that the disk can't read.

    The page cache holds many neighbouring pages as one, and returns none if one is unreadable.
    """
    if sys.platform == "linux":
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    end = position + length
    borders = [position, *range(position - position % -PAGESIZE, end, PAGESIZE), end]
    return b"".join(_read_or_zeros(fd, *piece) for piece in pairwise(borders))


def _read_or_zeros(fd: int, start: int, end: int) -> bytes:
    try:
        return os.pread(fd, end - start, start)
    except OSError:
        return bytes(end - start)


def allocate(fd: int, position: int, length: int) -> None:
    """Allocate disk space ahead of a write, so that a full disk can't leave half a commit."""
    if sys.platform != "linux":
        return
    try:
        os.posix_fallocate(fd, position, length)
    except OSError as error:
        # A file system that can't reserve space (EOPNOTSUPP) may still write.
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise


def begin_writeback(fd: int, position: int, length: int) -> None:
    """Make the disk begin to write these bytes, so that a later sync has less to do.

    An error at the begin must be raised here: the file system may drop the bytes, and the sync
    would then find nothing to write. Later errors are reported by the sync.
    """
    if sys.platform != "linux":
        return
    size = ctypes.c_longlong
    if LIBC.sync_file_range(fd, size(position), size(length), _SYNC_FILE_RANGE_WRITE):
        error = ctypes.get_errno()
        if error not in _NOT_BEGUN:
            raise OSError(error, os.strerror(error))


def sync_data(fd: int) -> None:
    """Make a file's bytes and its length durable.

    On macOS, a sync that the caller may believe must also empty the drive's own cache.
    """
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def make_folder(*folders: str) -> None:
    """Create folders and their parents, and sync their names, without which files are lost."""
    missing = [folder for folder in folders if not os.path.isdir(folder)]
    if not missing:
        return
    parents = {os.path.dirname(folder) for folder in missing}
    make_folder(*parents)
    for folder in missing:
        with suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        if not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    for parent in parents:
        sync_folder(parent)


def sync_file_system(folder: str) -> None:
    """Sync the whole file system of a folder, for files of programs that sync nothing."""
    if sys.platform != "linux":
        os.sync()
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if LIBC.syncfs(fd):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    finally:
        os.close(fd)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable, without which a linked or renamed file is lost."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
