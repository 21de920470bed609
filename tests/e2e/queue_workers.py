"""What the receivers of a queue do in the end-to-end tests: processes that tell what they had."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import kmq_spark as kmq
from tests.e2e import workers

QUEUE = "q"


def receive(url: str, seed: int, pipe: Connection) -> None:
    """Receive and answer until killed; tell what was had, and what each answer led to.

    Every other one takes record after record, so that it holds some ahead.
    """
    rng = random.Random(seed)
    sizes = (1,) if seed % 2 else (1, 3, 20)
    with kmq.open(url, durability="os") as store, store.queue(QUEUE) as queue:
        while True:
            held = queue.receive(rng.choice(sizes), timeout=0.5)
            facts = [(d.topic, d.offset, d.delivery_count, d.locked_until) for d in held]
            pipe.send(("had", time.time(), facts))
            if held and pipe.poll():  # to stop here: who holds the append lock would stop all
                pipe.send((pipe.recv(), time.time(), None))
                os.kill(os.getpid(), signal.SIGSTOP)
            for each in held:
                _answer(rng, each, pipe)


def _answer(rng: random.Random, held: kmq.Delivery, pipe: Connection) -> None:
    """Answer, and tell how and since when: a moment at which it was in hand, if its lock was."""
    place = (held.topic, held.offset, held.delivery_count)
    failed, begin = rng.random() < 0.1, time.time()
    try:
        if failed:
            pipe.send(("failed", begin, place))  # before, should it be killed in between
            held.nack(0)
        else:
            held.ack()
            pipe.send(("done", begin, place))
    except kmq.LeaseExpiredError:
        pipe.send(("late", begin, place))


class Had(NamedTuple):
    """One record in one pair of hands."""

    delivery: int
    begin: float
    #: When its lock ended.
    end: float


@dataclass
class Receivers:
    """Processes that receive from one queue, and what they told."""

    stack: ExitStack
    url: str
    processes: list[Any] = field(default_factory=list)
    pipes: list[Connection] = field(default_factory=list)
    had: dict[tuple[str, int], list[Had]] = field(default_factory=lambda: defaultdict(list))
    #: What each delivery was answered: it is done, or it was to fail.
    answered: dict[tuple[str, int, int], str] = field(default_factory=dict)
    #: When the last answer to each delivery began.
    tried: dict[tuple[str, int, int], float] = field(default_factory=dict)
    late: int = 0
    stopped: int = 0

    def start(self, seed: int) -> None:
        """One more."""
        process, pipe = self.stack.enter_context(workers.running(receive, self.url, seed))
        self.processes.append(process)
        self.pipes.append(pipe)

    def hear(self, until: Callable[[], bool], seconds: float = 150.0) -> None:
        """Take in what they tell until something is so."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, "nothing more happens"
            for pipe in wait(self.pipes, timeout=0.05):
                try:
                    self._note(*pipe.recv())  # type: ignore[union-attr]
                except (EOFError, OSError):
                    self.pipes.remove(pipe)  # type: ignore[arg-type]

    def _note(self, what: str, when: float, facts: Any) -> None:
        if what == "had":
            for topic, offset, delivery, until in facts:
                had = Had(delivery, when, until.timestamp())
                self.had[topic, offset].append(had)
        elif what == "stopped":
            self.stopped += 1
        else:
            self.tried[facts] = when
            if what == "late":
                self.late += 1
            else:
                self.answered[facts] = what
