"""Waiting until something is so that other threads or processes bring about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(so: Callable[[], T], seconds: float = 120.0) -> T:
    """What is asked for, once it is so; AssertionError when it isn't within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := so()):
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.005)
    return found
