"""Bytes that carry no information: they are zeros, and anything else there is damage."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_STEP = 1024 * 1024


def first_mark(contents: pa.Buffer, start: int, end: int) -> int | None:
    """The position of the first byte in [start, end) that is not zero, or None."""
    for begin in range(start, end, _STEP):
        window = np.frombuffer(contents.slice(begin, min(_STEP, end - begin)), np.uint8)
        if window.any():
            return begin + int(np.flatnonzero(window)[0])
    return None
