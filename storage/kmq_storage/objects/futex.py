"""Waiting on a word of shared memory: the kernel's futex, or polling where there is none.

See futex(2). The shared (not process-private) operations are used, since the word lies in a
mapped file that several processes map.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from collections.abc import Callable

from kmq_storage.objects.libc import LIBC

_SYSCALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
_WAIT, _WAKE, _EVERYBODY = 0, 1, 2**31 - 1
_POLL_SECONDS = 0.001

AVAILABLE = sys.platform == "linux" and _SYSCALL is not None and sys.byteorder == "little"


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _load() -> Callable[..., int] | None:
    if not AVAILABLE:
        return None
    call = LIBC.syscall
    call.restype = ctypes.c_long
    return call


_syscall = _load()


def wake(address: int, most: int = _EVERYBODY) -> None:
    """Wake at most `most` waiters of the 32-bit word at this address."""
    if _syscall is not None:
        _syscall(_SYSCALL, ctypes.c_void_p(address), _WAKE, most, None, None, 0)


def wait(address: int, value: int, timeout: float) -> None:
    """Sleep while the 32-bit word has this value, at most `timeout` seconds.

    It may return earlier, so the caller must look at the word again.
    """
    if _syscall is None:
        time.sleep(min(timeout, _POLL_SECONDS))
        return
    spec = _TimeSpec(int(timeout), int(timeout % 1.0 * 1e9))
    _syscall(
        _SYSCALL,
        ctypes.c_void_p(address),
        _WAIT,
        ctypes.c_uint32(value & 0xFFFFFFFF),
        ctypes.byref(spec),
        None,
        0,
    )
