"""Closing in the handler of a signal that interrupted a call of kmq: in a thread of its own.

The interrupted call may hold what closing waits for, and goes on only when the handler returned.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from types import FrameType
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
H = TypeVar("H")


def closes_apart(close: Callable[Concatenate[H, P], None]) -> Callable[Concatenate[H, P], None]:
    """Make a close that a handler calls in the middle of kmq return at once; a thread closes.

    The process waits for that thread before it ends. No other close does, as it may hold a lock
    that the thread needs.
    """

    @wraps(close)
    def closing(handle: H, /, *arguments: P.args, **options: P.kwargs) -> None:
        # Handlers run in the main thread only.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and _interrupts_a_call(sys._getframe()):
            given = (handle, *arguments)
            threading.Thread(target=close, args=given, kwargs=options, name="kmq-close").start()
        else:
            close(handle, *arguments, **options)

    return closing


def _interrupts_a_call(frame: FrameType | None) -> bool:
    """Whether this frame is of the handler of a signal that came in a call of kmq."""
    stack: list[FrameType] = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    calls = [number for number, each in enumerate(stack) if _is_of_kmq(each)]
    return any(
        _was_given(each, caller)
        for each, caller in pairwise(stack[: calls[-1] + 1])
        if not _is_of_kmq(each)
    )


def _is_of_kmq(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("kmq_spark.", "kmq_storage."))


def _was_given(frame: FrameType, caller: FrameType) -> bool:
    """Whether a function got the frame beneath its own, as only handlers of signals do.

    To look costs memory until the function ends: older Pythons keep what `f_locals` returns.
    """
    return any(
        value is caller or (type(value) is tuple and any(each is caller for each in value))
        for value in frame.f_locals.values()
    )
