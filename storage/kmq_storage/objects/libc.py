"""The C library, for system calls that Python's `os` lacks; they set `ctypes.get_errno()`."""

from __future__ import annotations

import ctypes

LIBC = ctypes.CDLL(None, use_errno=True)
