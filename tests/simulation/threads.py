"""Threads of one simulated process, and what they wait for each other with.

Modules that begin threads, or lock, get `THREADS` in place of `threading` (`World.limits`). So a
second thread of a process is a task, and waiting for a lock is a place to change tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.scheduler import Scheduler, Task

#: How many steps of others a thread waits at most for what comes in time, or not.
_STEPS = 3_000


class Threads:
    """What the modules use of `threading`."""

    #: That of the world that runs.
    scheduler: Scheduler

    def Lock(self) -> TaskLock:
        """A lock among the threads of a process."""
        return TaskLock(self.scheduler)

    def RLock(self) -> TaskLock:
        """A lock that its holder may take again."""
        return TaskLock(self.scheduler, again=True)

    def current_thread(self) -> Task | None:
        """The thread that runs."""
        return self.scheduler.running

    def Thread(
        self, target: Callable[..., None], args: tuple[Any, ...] = (), **facts: Any
    ) -> TaskThread:
        """A thread of the process that runs."""
        return TaskThread(self.scheduler, partial(target, *args), str(facts["name"]))


THREADS = Threads()


class TaskLock:
    """A lock; whoever waits for it lets others run."""

    def __init__(self, scheduler: Scheduler, *, again: bool = False) -> None:
        self._scheduler = scheduler
        #: Whether its holder may take it again.
        self._again = again
        self._holder: Task | None = None
        #: How often it was taken and not released.
        self._held = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; False when it is taken and must not be waited for."""
        me = self._scheduler.running
        while self._held and not (self._again and self._holder is me):
            assert me, "nobody else is there to release it"
            if not blocking:
                return False
            self._scheduler.pause(stay=0.0)
        self._held += 1
        self._holder = me
        return True

    def release(self) -> None:
        """Give it to others."""
        self._held -= 1

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._held > 0

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class TaskThread:
    """A thread that is a task of the process that began it."""

    def __init__(self, scheduler: Scheduler, work: Callable[[], None], name: str) -> None:
        self._scheduler = scheduler
        self._work = work
        self._name = name
        self._is_over = False

    def start(self) -> None:
        """Begin; RuntimeError where no process runs, as when a system has no more threads."""
        beside = self._scheduler.running
        if beside is None:
            raise RuntimeError("no process runs")
        task = Task(f"{self._name} of {beside.name}", self._run, beside.process)
        task.sleepy = beside.sleepy
        self._scheduler.begin(task)

    def _run(self) -> None:
        self._work()
        self._is_over = True

    def join(self, timeout: float) -> None:
        """Let others run until it is over, or the time is."""
        deadline = self._scheduler.clock + timeout
        while not self._is_over and self._scheduler.clock < deadline:
            self._scheduler.pause(0.01, stay=0.0)


class TaskBell:
    """As `waking.Bell`."""

    def __init__(self) -> None:
        self._scheduler = THREADS.scheduler
        self._rung = False

    def ring(self) -> None:
        """Make `wait` return."""
        self._rung = True

    def wait(self, timeout: float) -> bool:
        """Let others run for a while; returns whether it rang."""
        if not self._rung:
            self._scheduler.doze(_STEPS, timeout)
        rung, self._rung = self._rung, False
        return rung


class TaskSleepers:
    """As `waking.Sleepers`."""

    def __init__(self) -> None:
        self._scheduler = THREADS.scheduler

    def sleep(self, is_over: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let others run until it is over, or the time is."""
        deadline = self._scheduler.clock + (math.inf if timeout is None else timeout)
        while not is_over() and self._scheduler.clock < deadline:
            self._scheduler.pause(0.01, stay=0.0)
        return is_over()

    def wake(self) -> None:
        """They look by themselves."""


class TaskFlag:
    """As `waking.Flag`."""

    steps = _STEPS

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Have `wait` return."""
        self._is_set = True

    def wait(self, timeout: float) -> bool:
        """Let others run for a while; returns whether it is set."""
        if not self._is_set:
            THREADS.scheduler.doze(self.steps, timeout)
        return self._is_set
