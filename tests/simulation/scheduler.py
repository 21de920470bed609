"""A seeded scheduler: threads of which one runs at a time, changed only where they say so."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: How long a stall may be (seconds, steps): some are longer than every grace time.
STALLS = (0.1, 5.0, 45.0, 300.0)
_STEPS_MAX = 400_000


class Killed(BaseException):
    """The process or the machine ends here; nothing catches this."""


@dataclass
class Process:
    """What dies at once."""

    dead: bool = False


class Task:
    """One thread of a simulated process, which has no other one unless it is named."""

    def __init__(self, name: str, work: Callable[[], None], process: Process | None = None) -> None:
        self.name = name
        self.work = work
        self.process = process or Process()
        self.gate = threading.Lock()
        self.gate.acquire()
        self.kill_at = -1
        #: How likely each pause becomes a long one, and the step before which it does not end.
        self.sleepy = 0.0
        self.asleep_until = 0

    @property
    def dead(self) -> bool:
        """Whether its process ended."""
        return self.process.dead


class Scheduler:
    """Runs tasks one at a time; every pause may hand over to another one, or end one."""

    def __init__(self, rng: random.Random, stalled_steps: int) -> None:
        self.rng = rng
        #: How many steps of others a stall lasts at most.
        self.stalled_steps = stalled_steps
        self.clock = 1_000.0
        self.steps = 0
        self.crash_at = -1
        self.crashed = False
        self.failures: list[BaseException] = []
        self._alive: list[Task] = []
        self._threads: list[threading.Thread] = []
        self._outside = 0
        self._running: Task | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self, tasks: list[Task]) -> None:
        """Run all tasks to their end, or to that of the machine."""
        self.crashed = False
        for task in tasks:
            self.begin(task)
        self._resume(self._choose())
        self._done.acquire()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def begin(self, task: Task) -> None:
        """Have a task take part; its turn comes when another one pauses."""
        thread = threading.Thread(target=self._run, args=(task,), daemon=True)
        self._alive.append(task)
        self._threads.append(thread)
        thread.start()

    def _run(self, task: Task) -> None:
        task.gate.acquire()
        try:
            self._end_if_over(task)
            task.work()
        except Killed:
            pass
        except BaseException as error:
            self.failures.append(error)
            self.crashed = True
        self._alive.remove(task)
        if self._alive:
            self._resume(self._choose())
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

    @property
    def from_outside(self) -> bool:
        """Whether somebody looks from outside: nothing must go wrong then."""
        return self._outside > 0

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Look at the machine from outside: nothing runs, fails or ends in the block."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    def pause(self, seconds: float = 1e-6, *, stay: float = 0.7) -> None:
        """A place where others may run, a process may be killed and the machine may crash."""
        task = self._running
        if self._outside:
            return
        self.clock += seconds
        if task is None:
            return
        self._end_if_over(task)
        self.steps += 1
        assert self.steps < _STEPS_MAX, f"{task.name} comes to no end"
        if self.steps == self.crash_at:
            self.crashed = True
        if self.steps == task.kill_at:
            task.process.dead = True
        self._end_if_over(task)
        if task.sleepy and self.rng.random() < task.sleepy:
            self.stall()
        elif self.rng.random() >= stay:
            self._hand_over(task)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """What is not as it must be in the block ends the world, whoever else catches it."""
        try:
            yield
        except AssertionError as error:
            if self._running is None:
                raise
            self.failures.append(error)
            self.crashed = True
            raise Killed from error

    def kill(self) -> None:
        """The running task ends here."""
        if self._running is not None:
            self._running.process.dead = True
            self._end_if_over(self._running)

    def stall(self) -> None:
        """The running task stands still for a while, and the others go on."""
        task = self._running
        assert task is not None, "a task runs"
        task.asleep_until = self.steps + self.rng.randrange(self.stalled_steps)
        self.clock += self.rng.choice(STALLS)
        self._hand_over(task)

    def doze(self, steps: int, seconds: float) -> None:
        """The running task waits for a while; when it ends, others may have done much."""
        task = self._running
        if task is not None:
            task.asleep_until = self.steps + self.rng.randrange(steps)
            self.pause(seconds, stay=0.0)

    def _choose(self) -> Task:
        """Whoever goes on: nobody who is stalled while others are not."""
        awake = [task for task in self._alive if task.asleep_until <= self.steps]
        return self.rng.choice(awake or self._alive)

    def _hand_over(self, task: Task) -> None:
        other = self._choose()
        if other is not task:
            self._resume(other)
            task.gate.acquire()
            self._end_if_over(task)

    def _end_if_over(self, task: Task) -> None:
        if task.dead or self.crashed:
            task.process.dead = True
            raise Killed
