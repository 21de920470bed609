"""Sleeping and waking that survive an interruption at any moment.

A signal handler may raise wherever the interpreter looks for signals: when a Python function
begins, when a C call returns, and when a loop repeats. `threading.Event` and `Condition` are
written in Python: when they are interrupted, their inner lock may stay taken, and the thread that
wakes others hangs. Here, every change is one C call. A raw lock is taken only by `with`, which
can't be interrupted between taking the lock and entering the block.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, current_thread, main_thread


def can_be_interrupted() -> bool:
    """Whether a signal handler may raise here: handlers run only in the main thread."""
    return current_thread() is main_thread()


class Bell:
    """Wakes the one thread that waits for it, now or when it waits next."""

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Make `wait` return once, however often this is called before."""
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the bell rings, at most `timeout` seconds; returns whether it rang."""
        try:
            self._rung.get(timeout=None if timeout is None else min(max(timeout, 0), TIMEOUT_MAX))
        except Empty:
            return False
        return True

    def silence(self) -> None:
        """Forget that the bell rang."""
        if not self._rung.empty():  # usually it is empty
            self.wait(0)


class Sleepers:
    """Wakes all threads that wait for a condition."""

    __slots__ = ("_bells",)

    def __init__(self) -> None:
        self._bells: dict[Bell, None] = {}

    def sleep(self, is_over: Callable[[], bool], timeout: float | None = None) -> bool:
        """Unless `is_over`, sleep until `wake`, at most `timeout` seconds; returns `is_over`."""
        bell = Bell()
        try:
            self._bells[bell] = None  # before the check, so that a later change wakes this thread
            return is_over() or (bell.wait(timeout) and is_over())
        finally:
            self._bells.pop(bell, None)

    def wake(self) -> None:
        """Wake all threads, so that they check again."""
        if self._bells:  # usually no thread sleeps
            for bell in list(self._bells):
                bell.ring()


class Flag:
    """Is set by one thread, and waited for by any."""

    __slots__ = ("_is_set", "_sleepers")

    def __init__(self) -> None:
        self._is_set = False
        self._sleepers = Sleepers()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all threads that wait for it."""
        self._is_set = True
        self._sleepers.wake()

    def clear(self) -> None:
        """Have later waits sleep again."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it is set, at most `timeout` seconds; returns whether it is."""
        is_set = self._sleepers.sleep(self.is_set, timeout)
        while timeout is None and not is_set:  # it was cleared before this thread looked
            is_set = self._sleepers.sleep(self.is_set)
        return is_set
