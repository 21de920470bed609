"""Files mapped for reading, which hold no descriptor open.

`mmap.mmap` keeps a duplicate of the descriptor as long as the map lives; a map lives as long as a
record batch over it.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import pyarrow as pa

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_int64]
_munmap = _libc.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """Keeps a map until nobody needs it."""

    def __init__(self, fd: int, size: int) -> None:
        self._size = 0
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        self.address, self._size = address, size

    def __del__(self) -> None:
        if self._size:
            _munmap(self.address, self._size)


def mapped(fd: int, size: int) -> pa.Buffer:
    """The first bytes of a file, as they are now and will be; the descriptor may be closed."""
    if not size:
        return pa.py_buffer(b"")
    mapping = _Mapping(fd, size)
    return pa.foreign_buffer(mapping.address, size, mapping)
