"""The compiled modules of this package, all or none; code with two ways asks here.

Without it kmq does the same in Python, slower.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

try:
    from kmq_spark.client.compiled import adding, brief_lock, packed_rows, packing, unpacking
except ImportError:
    is_there = False
else:
    is_there = True

__all__ = ["adding", "brief_lock", "is_there", "new_lock", "packed_rows", "packing", "unpacking"]


def new_lock() -> AbstractContextManager[object, None]:
    """Return a lock for what many threads do for moments; threads can queue up at Python's own.

    Taking it is one C call, so no signal handler runs in between.
    """
    return brief_lock.BriefLock() if is_there else threading.Lock()
