"""What the members of a group do in the end-to-end tests: processes that tell what they read."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import kmq_spark as kmq
from tests.e2e import workers

TOPIC = "t"


def share(url: str, session_timeout: float, pipe: Connection) -> None:
    """Read as a member of group `g` until killed; tell each read, commit, refusal and change."""
    store = kmq.open(url, durability="os")
    consumer = store.consumer("g", session_timeout=session_timeout, assignor="sticky")

    def tell(what: str) -> Callable[[dict[str, list[int]]], None]:
        return lambda partitions: pipe.send((what, time.monotonic(), partitions[TOPIC]))

    consumer.subscribe(
        [TOPIC], on_assign=tell("assign"), on_revoke=lambda partitions: _hand_over(consumer),
        on_lost=tell("lost"),
    )  # fmt: skip
    while True:
        records = consumer.consume(500, timeout=0.5)
        if records:
            pipe.send(("read", time.monotonic(), [(r.partition, r.offset) for r in records]))
            if pipe.poll():  # told to stop: here, since one that holds the append lock stops all
                pipe.send((pipe.recv(), time.monotonic(), None))
                os.kill(os.getpid(), signal.SIGSTOP)
        try:
            consumer.commit()
        except kmq.FencedError:
            pipe.send(("fenced", time.monotonic(), None))


def _hand_over(consumer: kmq.Consumer) -> None:
    consumer.commit()  # what was read; the next owner goes on behind it


@dataclass
class Member:
    """One such process, and what it told."""

    process: Any
    pipe: Connection
    owned: set[int] = field(default_factory=set)
    reads: list[tuple[float, int, int]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def hear(self, what: str, when: float, facts: Any) -> None:
        """Note what it told."""
        self.told.append(what)
        if what == "read":
            self.reads += [(when, partition, offset) for partition, offset in facts]
        elif what == "assign":
            self.owned |= set(facts)
        elif what == "lost":
            self.owned -= set(facts)

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; when it was."""
        os.kill(self.process.pid, number)
        return time.monotonic()


class Members:
    """Processes that share group `g`."""

    def __init__(self, stack: ExitStack, url: str, count: int, session_timeout: float) -> None:
        self.all = [
            Member(*stack.enter_context(workers.running(share, url, session_timeout)))
            for _ in range(count)
        ]

    def hear(self, until: Callable[[], bool], seconds: float = 150.0) -> None:
        """Take in what they tell until something is so."""
        deadline = time.monotonic() + seconds
        pipes = {each.pipe: each for each in self.all}
        while not until():
            assert time.monotonic() < deadline, "nothing more happens"
            for pipe in wait(list(pipes), timeout=0.05):
                member = pipes[pipe]  # type: ignore[index]
                try:
                    member.hear(*member.pipe.recv())
                except (EOFError, OSError):
                    del pipes[member.pipe]

    def reads(self) -> dict[tuple[int, int], list[tuple[float, Member]]]:
        """Who read each record, and when."""
        found: dict[tuple[int, int], list[tuple[float, Member]]] = defaultdict(list)
        for member in self.all:
            for when, partition, offset in member.reads:
                found[partition, offset].append((when, member))
        return found
