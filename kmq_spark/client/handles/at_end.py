"""Closes handles when this process ends, however Python ends it.

A child that `multiprocessing` forks ends without the interpreter's exit: there its finalizers run
last. A process that is killed does nothing of this.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_LOGGER = logging.getLogger(__name__)
#: What is called at the end; the newest last.
_closes: dict[Callable[[], object], None] = {}
_is_ending = False
#: The process in which `multiprocessing` has our finalizer.
_told_in = 0


def at_end(close: Callable[[], object]) -> None:
    """Call this when the process ends; the newest is called first."""
    _closes[close] = None
    atexit.register(close)
    atexit.unregister(_begin)  # so that it comes first again
    atexit.register(_begin)
    _tell_multiprocessing()


def not_at_end(close: Callable[[], object]) -> None:
    """Don't call this at the end: it was called already."""
    _closes.pop(close, None)
    atexit.unregister(close)


def before_threads_end(call: Callable[[], object]) -> None:
    """Call this when the process ends, before it waits for threads, also those of pools."""
    threads: Any = threading
    with suppress(RuntimeError):  # it ends already
        threads._register_atexit(call)  # as pools do, from which it takes what is newer first


def is_ending() -> bool:
    """Whether the end has begun: nobody closes what threads open from now on."""
    return _is_ending


def _begin() -> None:
    global _is_ending  # noqa: PLW0603 - it is the process's
    _is_ending = True


def _end_child() -> None:
    """Do what Python's exit does: wait for the threads, which may be sending, then close."""
    threads: Any = threading
    threads._shutdown()  # a second call does nothing
    _begin()
    with suppress(KeyError):  # there are none left
        while True:
            close, _ = _closes.popitem()
            try:
                close()
            except BaseException:  # the others are still closed
                _LOGGER.exception("at the end of the process")


def _tell_multiprocessing() -> None:
    global _told_in  # noqa: PLW0603 - it is the process's
    process, util = map(sys.modules.get, ("multiprocessing.process", "multiprocessing.util"))
    if process is None or util is None or process.parent_process() is None:
        return
    if _told_in != os.getpid():
        _told_in = os.getpid()
        util.Finalize(None, _end_child, exitpriority=10)


def _after_fork_in_child() -> None:
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _closes:  # a child of its own forgets all finalizers first
        util.register_after_fork(_tell_multiprocessing, lambda tell: tell())


os.register_at_fork(after_in_child=_after_fork_in_child)
