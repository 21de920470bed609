"""How a handle is closed while other threads use it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kmq_storage import limits
from kmq_storage.errors import ClosedError


class Closed:
    """Stands for what a handle gave back: whoever asks it for anything gets ClosedError."""

    def __getattr__(self, name: str) -> Any:
        raise ClosedError("the store is closed")


@contextmanager
def idle(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock if it is given back in time: a signal's handler may close what it interrupted."""
    held = lock.acquire(timeout=limits.LOCK_TIMEOUT)
    try:
        yield
    finally:
        if held:
            lock.release()
