"""Threads that run what is due: as many as are needed, up to a bound."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

#: Up to this many waiting listeners delay no others.
_THREADS_MAX = 64


class Runs(Generic[T]):
    """Runs what is submitted, each when its time has come, in a thread of its own."""

    def __init__(self, run: Callable[[T], None], monotonic: Callable[[], float]) -> None:
        self._run = run
        self._monotonic = monotonic
        self._changed = threading.Condition()
        #: When it is due, its number, and what it is.
        self._due: list[tuple[float, int, T]] = []
        self._numbers = count()
        self._idle = 0
        self._is_closed = False
        self.threads: set[threading.Thread] = set()

    def submit(self, what: T, delay: float = 0.0) -> None:
        """Run this after `delay` seconds; does nothing once it is closed."""
        with self._changed:
            if self._is_closed:
                return
            heapq.heappush(self._due, (self._monotonic() + delay, next(self._numbers), what))
            if len(self._due) <= self._idle or not self._try_to_add_thread():
                self._changed.notify()

    def _try_to_add_thread(self) -> bool:
        if len(self.threads) >= _THREADS_MAX:
            return False
        thread = threading.Thread(target=self._work, name="kmq-orderly-run", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more: the threads that are there do all
            if not self.threads:
                raise
            return False
        self.threads.add(thread)
        return True

    def close(self) -> None:
        """Start nothing more, and return when nothing runs."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self.threads:
            thread.join()

    def _work(self) -> None:
        while (found := self._next()) is not None:
            self._run(found[2])

    def _next(self) -> tuple[float, int, T] | None:
        """What is due, when it is; None when it is closed."""
        with self._changed:
            self._idle += 1
            while not self._is_closed:
                wait = self._due[0][0] - self._monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    self._idle -= 1
                    return heapq.heappop(self._due)
                self._changed.wait(wait)
            return None
