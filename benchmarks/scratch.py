"""Files for what a disk alone can do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.job import Job

ALLOCATED = 4 << 20


@contextmanager
def empty(job: Job) -> Iterator[int]:
    """An empty file to append to, deleted at the end."""
    path = job.path("disk", str(os.getpid()))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        yield file
    finally:
        os.close(file)
        path.unlink()


@contextmanager
def allocated(job: Job) -> Iterator[int]:
    """A file whose blocks are written already, so that a sync has no metadata to write."""
    with empty(job) as file:
        os.write(file, bytes(ALLOCATED))
        os.fsync(file)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
