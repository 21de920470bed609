"""Sleeping and waking that survive an interruption at any moment.

A signal's handler may raise wherever the interpreter looks for signals: when a Python function
begins, when a call of C has come back, when a loop goes round. `threading` has Event and Condition
in Python: interrupted there, their inner lock stays taken, and whoever wakes hangs. Here every
change is one call of C. A raw lock is taken by `with` alone, which nothing can come between.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, current_thread, main_thread


def can_be_interrupted() -> bool:
    """Whether an error may be that of a signal's handler: they run in the main thread alone."""
    return current_thread() is main_thread()


class Bell:
    """Wakes the one thread that waits for it, now or when it comes to wait."""

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Have `wait` return; once, however often this is called before."""
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it is rung, at most `timeout` seconds; whether it was."""
        try:
            self._rung.get(timeout=None if timeout is None else min(max(timeout, 0), TIMEOUT_MAX))
        except Empty:
            return False
        return True

    def silence(self) -> None:
        """Forget that it was rung."""
        if not self._rung.empty():  # mostly it is
            self.wait(0)


class Sleepers:
    """Wakes all threads that wait for something to become true."""

    __slots__ = ("_bells",)

    def __init__(self) -> None:
        self._bells: dict[Bell, None] = {}

    def sleep(self, is_over: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep until `wake` unless it is over, at most `timeout` seconds; whether it is then."""
        bell = Bell()
        try:
            self._bells[bell] = None  # before the look: who changes it later wakes us
            return is_over() or (bell.wait(timeout) and is_over())
        finally:
            self._bells.pop(bell, None)

    def wake(self) -> None:
        """Have everybody look again."""
        if self._bells:  # mostly nobody sleeps
            for bell in list(self._bells):
                bell.ring()
