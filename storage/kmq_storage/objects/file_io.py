"""System calls on files, with the loops and fallbacks that each of them needs."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from kmq_storage.objects.files import Bytes

#: IOV_MAX on Linux; more buffers than this go in several calls.
_BUFFERS_PER_CALL = 1024


def write_all(fd: int, position: int, buffers: Sequence[Bytes]) -> None:
    """Write all buffers one after another at the position, however often the kernel stops short."""
    views = [memoryview(buffer) for buffer in buffers if len(buffer)]
    while views:
        written = os.pwritev(fd, views[:_BUFFERS_PER_CALL], position)
        if written == 0:
            raise OSError(errno.EIO, "the file system wrote nothing")
        position += written
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def allocate(fd: int, position: int, length: int) -> None:
    """Take disk space ahead of a write: a full disk shows before a commit is half written."""
    if sys.platform != "linux":
        return
    try:
        os.posix_fallocate(fd, position, length)
    except OSError as error:
        # A file system that can't reserve space (EOPNOTSUPP) still may write.
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise


def make_folder(folder: str) -> None:
    """Make a folder and those above it, their names on disk: a synced file is lost without them."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    sync_folder(parent)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable: a linked or renamed file is lost without it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
