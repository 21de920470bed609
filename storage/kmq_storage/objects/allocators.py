"""Memory that nobody uses any more, and that allocators keep for who might ask again."""

from __future__ import annotations

import pyarrow as pa

from kmq_storage.objects.libc import LIBC

#: Of glibc; the C libraries of other systems keep less.
_trim = getattr(LIBC, "malloc_trim", None)


def give_back() -> None:
    """Give idle memory of Arrow's and C's allocators back to the machine.

    For after work that took hundreds of MiB: threads that ended leave theirs in pieces, which
    nothing else takes.
    """
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
