"""Unused memory that allocators keep for later allocations."""

from __future__ import annotations

import pyarrow as pa

from kmq_storage.objects.libc import LIBC

#: Only glibc has it; the C libraries of other systems keep less memory.
_trim = getattr(LIBC, "malloc_trim", None)


def give_back() -> None:
    """Return unused memory of Arrow's and C's allocators to the system.

    Call it after work that used hundreds of MiB: threads that ended leave fragments, which nothing
    else returns.
    """
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
