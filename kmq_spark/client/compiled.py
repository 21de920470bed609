"""What was compiled of this package, all of it or nothing; who has two ways asks here.

Without it kmq does the same in Python, slower.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

try:
    from kmq_spark.client import adding, brief_lock, packed_rows, packing, unpacking
except ImportError:
    is_there = False
else:
    is_there = True

__all__ = ["adding", "brief_lock", "is_there", "new_lock", "packed_rows", "packing", "unpacking"]


def new_lock() -> AbstractContextManager[object, None]:
    """A lock of what many threads do for moments; for one of Python's they stand in line at times.

    Taking it is one call of C, so that no signal comes in between.
    """
    return brief_lock.BriefLock() if is_there else threading.Lock()
