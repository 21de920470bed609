"""Closing a handle while other threads use it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kmq_storage import limits
from kmq_storage.errors import ClosedError


class Closed:
    """Replaces the released parts of a handle: any use of them raises ClosedError."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        raise ClosedError(self._message)


#: For what belongs to a store. Made before it is needed: a close may be interrupted anywhere.
CLOSED: Any = Closed("the store is closed")


@contextmanager
def idle(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock if it becomes free in time.

    Otherwise go on without it: a signal handler may close the handle in the thread that it
    interrupted, which holds the lock.
    """
    held = lock.acquire(timeout=limits.LOCK_TIMEOUT)
    try:
        yield
    finally:
        if held:
            lock.release()
