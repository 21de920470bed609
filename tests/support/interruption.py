"""Ctrl-C at a chosen place."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import FrameType
from typing import Any, Self

from tests.support.garbage import kept_garbage


class Interruption:
    """A KeyboardInterrupt at the n-th place where the interpreter looks for signals.

    That is when a Python function begins and when a C function comes back; but not in `__del__` of
    other tests' garbage, where it would be lost.
    """

    def __init__(self, at: int, *folders: str) -> None:
        self._left = at
        self._folders = folders or ("/kmq_spark/client/",)
        #: Whether it came; what is raised where nobody can catch it is lost.
        self.came = False
        self._stack = ExitStack()

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and any(
            each in frame.f_code.co_filename for each in self._folders
        ):
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                self.came = True
                raise KeyboardInterrupt

    def __enter__(self) -> Self:
        self._stack.enter_context(kept_garbage())
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._stack.close()
