"""CRC-32C, the checksum of everything that kmq writes.

One algorithm per format version: a reader without an optional library must not be unable to
verify. CRC-32C is what Kafka uses, and Java has it built in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, TypeAlias

import google_crc32c
import pyarrow as pa

Bytes: TypeAlias = bytes | pa.Buffer


def checksum(data: Bytes, seed: int = 0) -> int:
    """The CRC-32C of bytes, continued from a seed."""
    return int(google_crc32c.extend(seed, data))


def checksum_aside(data: pa.Buffer, seed: int = 0) -> int:
    """The same, while other threads run; worth it for some 100 KB and more."""
    if _extend is None:
        return checksum(data, seed)
    return int(_extend(seed, data.address, data.size))


def _library_function() -> Any | None:
    """The C function that google_crc32c calls with the interpreter locked; None without it."""
    try:
        extend = ctypes.CDLL(google_crc32c._crc32c.__file__).crc32c_extend
    except (AttributeError, OSError):
        return None
    extend.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t)
    extend.restype = ctypes.c_uint32
    return extend


_extend = _library_function()
#: Whether two threads get twice as far with `checksum_aside`.
RUNS_ASIDE = _extend is not None


def checksum_of(buffers: Iterable[Bytes]) -> int:
    """The CRC-32C of buffers that stand one after another."""
    found = 0
    for buffer in buffers:
        found = checksum(buffer, found)
    return found
