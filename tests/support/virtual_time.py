"""Threads in a time of their own: one runs at a time, then the one whose sleep ends first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from heapq import heappop, heappush


class VirtualTime:
    """A clock that moves on when every thread sleeps. The same threads sleep the same each time."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._sleeping: list[tuple[float, int, threading.Semaphore]] = []
        self._sleeps = 0
        self._tasks: set[int] = set()
        self.failures: list[BaseException] = []

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Run these to their end, each in a thread of its own."""
        done = threading.Semaphore(0)

        def run_one(work: Callable[[], None], gate: threading.Semaphore) -> None:
            gate.acquire()
            self._tasks.add(threading.get_ident())
            try:
                work()
            except BaseException as error:
                self.failures.append(error)
            self._tasks.discard(threading.get_ident())
            if self._sleeping:
                self._wake_next()
            else:
                done.release()

        threads = []
        for work in works:
            gate = self._bed(self.now)
            threads.append(threading.Thread(target=run_one, args=(work, gate), daemon=True))
            threads[-1].start()
        self._wake_next()
        done.acquire()
        for thread in threads:
            thread.join()

    def sleep(self, seconds: float) -> None:
        """Let this much time pass; other threads run meanwhile."""
        if threading.get_ident() not in self._tasks:
            self.now += seconds
            return
        gate = self._bed(self.now + seconds)
        self._wake_next()
        gate.acquire()

    def _bed(self, until: float) -> threading.Semaphore:
        gate = threading.Semaphore(0)
        self._sleeps += 1
        heappush(self._sleeping, (until, self._sleeps, gate))
        return gate

    def _wake_next(self) -> None:
        until, _, gate = heappop(self._sleeping)
        self.now = max(self.now, until)
        gate.release()
