"""A seeded scheduler: threads of which one runs at a time, changed only where they say so."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable


class Killed(BaseException):
    """The process or the machine ends here; nothing catches this."""


class Task:
    """One simulated process."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.name = name
        self.work = work
        self.gate = threading.Semaphore(0)
        self.dead = False
        self.kill_at = -1


class Scheduler:
    """Runs tasks one at a time; every pause may hand over to another one, or end one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = 1_000.0
        self.steps = 0
        self.crash_at = -1
        self.crashed = False
        self.failures: list[BaseException] = []
        self._alive: list[Task] = []
        self._running: Task | None = None
        self._done = threading.Semaphore(0)

    def run(self, tasks: list[Task]) -> None:
        """Run all tasks to their end, or to that of the machine."""
        self.crashed = False
        self._alive = list(tasks)
        threads = [threading.Thread(target=self._run, args=(task,), daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        self._resume(self.rng.choice(self._alive))
        self._done.acquire()
        for thread in threads:
            thread.join()

    def _run(self, task: Task) -> None:
        task.gate.acquire()
        try:
            task.work()
        except Killed:
            pass
        except BaseException as error:
            self.failures.append(error)
            self.crashed = True
        self._alive.remove(task)
        if self._alive:
            self._resume(self.rng.choice(self._alive))
        else:
            self._running = None
            self._done.release()

    def _resume(self, task: Task) -> None:
        self._running = task
        task.gate.release()

    @property
    def running(self) -> Task | None:
        """The task that runs now; None outside of `run`."""
        return self._running

    def pause(self, seconds: float = 1e-6, *, stay: float = 0.7) -> None:
        """A place where others may run, a process may be killed and the machine may crash."""
        task = self._running
        self.clock += seconds
        if task is None:
            return
        self._end_if_over(task)
        self.steps += 1
        if self.steps == self.crash_at:
            self.crashed = True
        if self.steps == task.kill_at:
            task.dead = True
        self._end_if_over(task)
        if self.rng.random() >= stay:
            self._hand_over(task)

    def _hand_over(self, task: Task) -> None:
        other = self.rng.choice(self._alive)
        if other is not task:
            self._resume(other)
            task.gate.acquire()
            self._end_if_over(task)

    def _end_if_over(self, task: Task) -> None:
        if task.dead or self.crashed:
            task.dead = True
            raise Killed
