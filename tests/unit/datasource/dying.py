"""Processes that are killed at a step of their choice."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

#: The calls of a commit that change what other processes find: files, the hint page, locks.
_CHANGES = {"try_acquire", "allocate", "write_at", "write_all", "store", "sync", "wake", "release"}


def killed_at(step: int, action: Callable[[], None]) -> bool:
    """Run this in a child that is killed when it comes to its n-th change."""
    child = os.fork()
    if child == 0:
        left = step

        def look(frame: FrameType, event: str, _: Any) -> None:
            nonlocal left
            code = frame.f_code
            if event != "call" or "/kmq_storage/objects/" not in code.co_filename:
                return
            if code.co_name in _CHANGES:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(look)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the commit failed"
    return os.WIFSIGNALED(status)
