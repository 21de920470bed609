"""A kernel lock on a file, which the kernel frees when its holder dies, even by `kill -9`."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from kmq_storage.objects.file_io import make_folder
from kmq_storage.objects.fork import reopen_in_child
from kmq_storage.objects.owner import Owner

_LOCK_TABLE = Path("/proc/locks")


class FileLock:
    """`flock` on a file that is never replaced, with one descriptor per process.

    `flock` does not keep two threads with one descriptor apart, so the owner among the threads is
    decided first.
    """

    def __init__(self, path: str, *, read_only: bool) -> None:
        self._file_name = path
        self._read_only = read_only
        self._owner = Owner()
        self._fd = -1
        reopen_in_child(self._after_fork)

    def try_acquire(self) -> bool:
        """See `Lock.try_acquire`."""
        if not self._owner.try_become():
            return False
        try:
            fcntl.flock(self._open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._owner.thread = 0
            return False
        except BaseException:
            self.release()
            raise
        return True

    def take_over(self) -> bool:
        """False: the kernel frees the lock of a dead holder, and a live one keeps it."""
        return False

    def _open(self) -> int:
        if self._fd < 0:
            flags = os.O_RDONLY if self._read_only else os.O_RDWR | os.O_CREAT
            if not self._read_only:
                make_folder(os.path.dirname(self._file_name))
            self._fd = os.open(self._file_name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return self._fd

    def release(self) -> None:
        """See `Lock.release`."""
        try:
            if self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._owner.thread = 0

    def release_own(self) -> None:
        """See `Lock.release_own`."""
        if self._owner.is_here():
            self.release()

    def is_held(self) -> bool:
        """See `Lock.is_held`."""
        return self.last_beat() is not None

    def beat(self) -> None:
        """Show that the holder runs, by the date of the file."""
        os.utime(self._fd)

    def last_beat(self) -> int | None:
        """The date of the file; None when the lock is free.

        The check takes a shared lock for a moment, so several checks at once don't see each other.
        """
        try:
            fd = os.open(self._file_name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:  # the lock was never taken
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)
        return None

    def discard(self) -> None:
        """See `Lock.discard`."""
        with suppress(FileNotFoundError):
            os.unlink(self._file_name)

    def holder(self) -> str:
        """The process that holds the lock, found in the kernel's table of locks."""
        with suppress(OSError):
            ending = f":{os.stat(self._file_name).st_ino}"
            for line in _LOCK_TABLE.read_text().splitlines():
                fields = line.split()
                if "FLOCK" in fields and fields[5].endswith(ending):
                    return f"process {fields[4]}"
        return "another process"

    def _after_fork(self) -> None:
        """Drop the parent's descriptor: a lock taken through it would be shared with the parent."""
        self._owner = Owner()
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self._close()
