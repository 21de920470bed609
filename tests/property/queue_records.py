"""What the model of a queue knows: small objects, one per record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kmq_storage.format.entries import Entry
from kmq_storage.format.manifest import Key
from kmq_storage.format.queue_entries import (
    ACK,
    DEAD,
    EXHAUSTED,
    EXTEND,
    RECALL,
    RETRY,
    AnswerEntry,
    LookEntry,
    Run,
)
from kmq_storage.log.state.queues.queue import Queue
from kmq_storage.log.state.queues.rows import NEVER


@dataclass
class Model:
    """One record."""

    key: Key
    offset: int
    at: int = 0
    expires: int = NEVER
    priority: int = 4
    #: What its order goes by; 0 for nothing.
    order: int = 0
    looked: bool = True
    #: free, held, waiting, done.
    state: str = "free"
    #: How often it was handed out, and what tells the last time from all others.
    count: int = 0
    number: int = 0

    def answer(self, what: int, at: int) -> None:
        """Its holder says what becomes of it."""
        if what in (ACK, DEAD):
            self.state = "done"
        elif what == RETRY:
            self.state, self.at = "waiting", at
        elif what == EXTEND:
            self.at = at
        else:
            self.state, self.at = "free", 0
            self.count -= 1

    def is_over(self, now: int) -> bool:
        """Whether nobody holds it, and nobody gets it any more."""
        return self.expires <= now and not (self.state == "held" and self.at > now)


@dataclass
class Totals:
    delivered: int = 0
    acked: int = 0
    dead: int = 0
    expired: int = 0
    turns: int = 0
    answered: list[Run] = field(default_factory=list)


@dataclass
class SlipModel:
    """What one receiver got with a slip, one by one, and what it noted there."""

    round: int
    until: int
    runs: list[Run]
    noted: set[Run] = field(default_factory=set)
    #: These are answered by commits.
    others: set[Run] = field(default_factory=set)
    taken: bool = False


def one_by_one(runs: Iterable[Run]) -> list[Run]:
    """Each record of some runs as a run of its own."""
    return [run._replace(first=run.first + n, rows=1) for run in runs for n in range(run.rows)]


def said_while_unbound(queue: Queue, keys: Iterable[Key], now: int) -> Iterable[Entry]:
    """What must not be said of partitions as long as a queue doesn't read them."""
    for key in keys:
        if key[0] in queue.bindings:
            continue
        run = Run(*key, 0, 1, queue.unnumbered(key[0]))
        for answer in (EXHAUSTED, RECALL):
            yield AnswerEntry(queue.id, answer, now, 0, (run,))
        yield LookEntry(queue.id, *key, 0, 1, ((0, 1),), (1,), queue.unbound.get(key[0], 0))
