"""A system that gives a process no more threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def no_more_threads() -> Iterator[None]:
    """No thread can be started in the block."""
    refused = RuntimeError("can't start new thread")
    with patch.object(threading.Thread, "start", side_effect=refused):
        yield
