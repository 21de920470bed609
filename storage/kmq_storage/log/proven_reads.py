"""What doesn't prove itself is fetched once more before it counts as damaged.

A server, or what stands before it, may send other bytes once. Caches believe whatever they fetched,
for as long as they keep it, so they must forget it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kmq_storage.errors import CorruptionError
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.objects.files import Files

T = TypeVar("T")


def proven(files: Files, file: str, read: Callable[[], T]) -> T:
    """What `read` makes of a file; its CorruptionError or InvalidFrameError if that is of no use
    a second time either."""
    try:
        return read()
    except (CorruptionError, InvalidFrameError):
        if not files.forget(file):
            raise
        return read()
