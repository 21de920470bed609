"""A log file on a local disk, which is mapped for reading and written with pwritev."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from kmq_storage import limits
from kmq_storage.objects.file_io import allocate, read_all, read_or_zeros, sync_data, write_all
from kmq_storage.objects.files import Bytes
from kmq_storage.objects.mapping import mapped

_STEP = 65_536
_ZEROS = bytes(_STEP)
_JOINED_BYTES = 16_384
#: Readers look this many bytes behind the last frame for the next one. These bytes are allocated,
#: too: on a full tmpfs, reading a hole through the map kills the process.
_LOOKED_AT = 128


class MappedLogFile:
    """A log file of fixed size, which is never truncated."""

    def __init__(self, path: str, *, read_only: bool) -> None:
        self._path = path
        flags = os.O_RDONLY if read_only else os.O_RDWR
        self._fd = os.open(path, flags | os.O_CLOEXEC)
        self._allocated = 0
        facts = os.fstat(self._fd)
        self._size, self._inode = facts.st_size, facts.st_ino
        self._contents = mapped(self._fd, self._size, path)

    def write_at(self, position: int, buffers: Sequence[Bytes], length: int) -> None:
        """See `LogFile.write_at`."""
        self._check_there()
        end = position + length + _LOOKED_AT
        if end > self._allocated:
            step = limits.PREALLOCATE_BYTES
            upto = min(self._size, -(-end // step) * step)
            allocate(self._fd, position, upto - position)
            self._allocated = upto
        if length <= _JOINED_BYTES:  # copying these costs less than making a view of each
            buffers = [b"".join(buffers)]
        write_all(self._fd, position, buffers)

    def _check_there(self) -> None:
        """FileNotFoundError when the file was removed or replaced, or its store was moved."""
        with suppress(FileNotFoundError):
            if os.stat(self._path).st_ino == self._inode:
                return
        what = "the log file was removed or replaced, or its store's folder moved"
        raise FileNotFoundError(errno.ENOENT, what, self._path)

    def clear_from(self, position: int) -> None:
        """See `LogFile.clear_from`."""
        for start in range(position, self._size, _STEP):
            zeros = _ZEROS[: self._size - start]
            if read_all(self._fd, start, len(zeros)) != zeros:
                write_all(self._fd, start, [zeros])

    def sync(self) -> None:
        """See `LogFile.sync`."""
        sync_data(self._fd)

    def read(self, position: int, length: int) -> bytes:
        """See `LogFile.read`; bytes that the disk can't read are zeros."""
        return read_or_zeros(self._fd, position, min(length, self._size - position))

    def has_data_from(self, position: int) -> bool:
        """See `LogFile.has_data_from`; holes of the file are skipped where the system tells."""
        while (start := self._written_from(position)) is not None:
            found = self.read(start, _STEP)
            if found != _ZEROS[: len(found)]:
                return True
            position = start + _STEP
        return False

    def _written_from(self, position: int) -> int | None:
        if position >= self._size:
            return None
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else position

    def contents(self) -> pa.Buffer:
        """See `LogFile.contents`."""
        return self._contents

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            os.close(self._fd)
