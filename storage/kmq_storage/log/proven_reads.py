"""Invalid bytes are fetched again before they count as damaged.

A server, or a proxy before it, may send wrong bytes once. A cache keeps what it fetched, so it must
drop these bytes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kmq_storage.errors import CorruptionError
from kmq_storage.format.frame import InvalidFrameError
from kmq_storage.objects.files import Files

T = TypeVar("T")


def proven(files: Files, file: str, read: Callable[[], T]) -> T:
    """The result of `read`; when it finds the file invalid, the file is fetched and read again.

    CorruptionError or InvalidFrameError when it is invalid the second time, too.
    """
    try:
        return read()
    except (CorruptionError, InvalidFrameError):
        if not files.forget(file):
            raise
        return read()
