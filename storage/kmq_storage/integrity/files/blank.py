"""Finds damage in padding, whose bytes must all be zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmq_storage.objects.files import Bytes

_STEP = 1024 * 1024


def first_mark(read: Callable[[int, int], Bytes], start: int, end: int) -> int | None:
    """The position of the first byte in [start, end) that is not zero, or None.

    `read` takes a position and a number of bytes, and returns these bytes.
    """
    for begin in range(start, end, _STEP):
        window = np.frombuffer(read(begin, min(_STEP, end - begin)), np.uint8)
        if window.any():
            return begin + int(np.flatnonzero(window)[0])
    return None
