"""A page cache that is full, as that of a machine which has been up for a while.

A host lends a virtual machine its memory page by page, and takes back what lies free for some
seconds: the first touch of such a page takes ten times as long as that of one the cache had.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HELP = "fill the page cache first, as it is on a machine that has been up for a while"
_READ = 8 * 1024 * 1024
#: Bytes that stay free: the kernel keeps about as many.
_FREE = 256 * 1024 * 1024


@contextmanager
def filled(folder: str) -> Iterator[int]:
    """Fill what is free with a file without contents while this lasts: so many bytes."""
    with tempfile.TemporaryFile(dir=folder) as file:
        size = max(_free_memory() - _FREE, 0) // _READ * _READ
        os.truncate(file.fileno(), size)
        into = bytearray(_READ)
        for position in range(0, size, _READ):
            os.preadv(file.fileno(), [into], position)
        yield size


def _free_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (free,) = (line.split()[1] for line in lines if line.startswith("MemFree:"))
    return int(free) * 1024
