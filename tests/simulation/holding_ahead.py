"""A queue whose receivers hold records ahead, and note on slips which of them are done.

Each process has one or two threads on one handle, and the handle's own, which gives back what is
not handed out soon. Nobody waits for the disk, so a crash may take everything back. Until then,
and however many processes die, what a receiver was told must stay true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kmq_spark.client.queues import ahead, open_slip
from kmq_spark.client.queues import queue as client_queue
from kmq_spark.client.queues.delivery import Delivery
from kmq_spark.client.queues.queue import Queue
from kmq_storage.errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    LeaseExpiredError,
    UnavailableError,
)
from kmq_storage.format import slip_words
from kmq_storage.format.queue_entries import ACK, AnswerEntry, SlipAcquireEntry, SlipAnswerEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.disk import local_log
from kmq_storage.log.state.queues.rows import PRIORITY
from kmq_storage.maintenance import left_slips
from kmq_storage.queues import slips
from tests.simulation.cards import Place
from tests.simulation.disk import Faults
from tests.simulation.ledger import places_of
from tests.simulation.lineage import Node
from tests.simulation.queue_world import PathCheck, Queueing
from tests.simulation.queueing import JOBS, Answer, Receiver
from tests.simulation.scheduler import Process, Task
from tests.simulation.sizes import Size
from tests.simulation.slip_disk import SlipDisk
from tests.simulation.threads import THREADS, TaskBell, TaskSleepers
from tests.simulation.world import Limit

_PLACES, _GROUPS = 12, 3
_PROCESSES, _THREADS, _BURSTS, _CALLS = 3, (1, 1, 2), (2, 8), (1, 12)
#: A record, and the number of a delivery.
_Told = tuple[Place, int]


def _nothing(*_: Any) -> None:
    """A process that ends here is not the one that runs the tests."""


def _small_slips() -> tuple[Limit, ...]:
    words = {"PLACES": _PLACES, "GROUPS": _GROUPS, "WORDS": 1 + _PLACES + _GROUPS}
    modules = (ahead, left_slips, open_slip, slips, slip_words)
    return tuple(
        (module, name, value)
        for module in modules
        for name, value in words.items()
        if hasattr(module, name)
    )


class Told:
    """What receivers were told since something was lost: it must stay true."""

    def __init__(self, since: object = None) -> None:
        self._since = since
        #: The deliveries that somebody got.
        self.got: set[_Told] = set()
        #: What was acknowledged, by the record and with its delivery.
        self.done: dict[Place, int] = {}
        self.acked: set[_Told] = set()
        #: What was said to be too late, and never acknowledged after all.
        self.late: set[_Told] = set()
        #: Of what it is not known.
        self.unknown: set[_Told] = set()
        #: What was acknowledged together, and how often each was named.
        self.together: list[frozenset[_Told]] = []
        self.named: Counter[_Told] = Counter()

    def begin_anew_if(self, lost: object) -> None:
        """Forget everything when more is lost than before."""
        if lost != self._since:
            self.__init__(lost)  # type: ignore[misc]

    def check(self, path: Sequence[Node]) -> None:
        """The commits that came to be say so, too."""
        acked = {told for node in path for told in _acked_in(node)}
        assert self.acked <= acked, "an acknowledgement was accepted, and forgotten"
        late = self.late - self.acked - self.unknown
        assert not late & acked, "an acknowledgement that came too late counts"
        for some in self.together:
            if all(self.named[told] == 1 for told in some):
                assert not some & acked or some <= acked, "what was noted together counts in part"


def _acked_in(node: Node) -> Iterator[_Told]:
    for entry in node.entries:
        if isinstance(entry, AnswerEntry) and entry.answer == ACK:
            cards = node.ledger.accounts[entry.queue_id].cards
            for place, delivery in places_of(entry.runs):
                if cards[place].state == "done" and cards[place].count == delivery:
                    yield place, delivery


class AheadWorld(Queueing):
    """On a disk, with threads and slips."""

    limits = (
        *Queueing.limits,
        *_small_slips(),
        *((each, "threading", THREADS) for each in (ahead, open_slip, client_queue, local_log)),
        (ahead, "Bell", TaskBell),
        (ahead, "Sleepers", TaskSleepers),
        (ahead, "at_end", _nothing),
        (ahead, "not_at_end", _nothing),
        (ahead, "_PROOF", 1),
        (ahead, "_PAUSE", 60.0),
        (slips, "_USED", 20.0),
    )
    locks = (2.0, 10.0, 30.0)
    receivers_at_once, senders_at_once, loops_at_once = 1, 2, 1
    sizes = (
        *(Size((1, 4), 1, (2, 5), 1, (1, 4), (0, 1, 1), (2, 8), 0.6),) * 3,
        Size((1, 4), 1, (2, 5), 1, (1, 4), (2,), (10, 25), 1.0),
    )
    expires = True
    sent_at_once, priorities, orders = (1, 12), (PRIORITY,), ("none", "none", "key")
    #: Enough for several rounds.
    crash_steps, tidy_steps, kill_steps = 16_000, 60_000, 10_000

    def __init__(self, seed: int) -> None:
        self.told = Told()
        super().__init__(seed)

    def _make_place(self) -> None:
        THREADS.scheduler = self.scheduler
        self.machine = self.files = self.slips = SlipDisk(self.scheduler, Faults())
        self.files.watch_removal = self._check_removal

    def _tasks(self) -> list[Task]:
        found = super()._tasks()
        for _ in range(_PROCESSES):
            process, hands = Process(), Hands(self, self.next_incarnation())
            for n in range(self.rng.choice(_THREADS)):
                found.append(Task(f"thread {n} of {hands.number}", hands.run, process))
        return found

    def known(self) -> Told:
        """What was told, and still holds."""
        lost_something = self.slips.dropped_pages
        self.told.begin_anew_if(object() if lost_something else self.machine.boots)
        return self.told

    def check_held(self, held: Delivery, holder: int) -> None:
        """Somebody whose log is not durable was told that it holds this record."""
        self.check_delivery(held, holder, durable=False)
        known = self.known()
        told = held.place, held.run.delivery
        assert told not in known.got, f"{held.place} is held by two, or twice by one"
        known.got.add(told)
        done = known.done.get(held.place, held.run.delivery)
        assert held.run.delivery <= done, f"{held.place} was acknowledged, and comes again"

    def _path_checks(self) -> tuple[PathCheck, ...]:
        return (self.known().check, self._count)

    def _count(self, path: Sequence[Node]) -> None:
        for node in path:
            for entry in node.entries:
                self.done["rounds"] += isinstance(entry, SlipAcquireEntry)
                if isinstance(entry, SlipAnswerEntry):
                    self.done["noted"] += sum(run.rows for run in entry.runs)
                    self.done["taken over"] += entry.by == slips.TAKEN_OVER


class Hands(Receiver):
    """One process: its threads share a handle, and each receives and answers, fast."""

    _world: AheadWorld

    def __init__(self, world: AheadWorld, number: int) -> None:
        super().__init__(world, number)
        self.number = number
        self._opening = THREADS.Lock()
        self._queue: Queue | None = None

    def run(self) -> None:
        """Take part for some bursts of calls, then end in one of several ways."""
        for _ in range(self._rng.randrange(*_BURSTS)):
            try:
                self._burst(self._opened())
            except UnavailableError:
                self._world.done["unanswered"] += 1
            except ClosedError:
                return  # its other thread ended
            except CorruptionError:
                if not self._world.machine.failed:
                    raise
        end = self._rng.random()
        if end < 0.3:
            self._world.scheduler.kill()
        elif end < 0.6 and self._queue is not None:
            self._queue.close()  # also beside a thread that is busy

    def _opened(self) -> Queue:
        with self._opening:
            if self._queue is None:
                self._log = self._world.open(durable=False, writes=True)
                self._queue = Queue(self._log, JOBS, _PLACES)
            return self._queue

    def _burst(self, queue: Queue) -> None:
        wanted = self._rng.choice((1, 1, 1, 2, 3))
        for _ in range(self._rng.randrange(*_CALLS)):
            held = self._received(queue, wanted)
            self._world.done["received"] += len(held)
            for each in held:
                self._world.check_held(each, self.number)
            if not held:
                self._world.rest(self._log, self._log.state.lsn)
                return
            if self._rng.random() < 0.08:
                self._world.scheduler.stall()  # perhaps for longer than the lock
            if self._rng.random() < 0.1:
                held, self._kept = self._kept + held, []
            elif self._rng.random() < 0.1:
                self._kept += held
            self._answer(queue, held)
            if self._rng.random() < 0.1:
                self._answer(queue, held)  # a second time

    def _received(self, queue: Queue, wanted: int) -> list[Delivery]:
        """The next records: those that were in hand are not handed out when their lock ended."""
        began = self._world.scheduler.steps
        held = queue.receive(wanted)
        if self._world.scheduler.steps == began and not self._world.clocks_jump:
            now = self._log.now_us()
            assert all(each.hold.until > now for each in held), "it lay in hand for too long"
            self._world.done["from hand"] += len(held)
        return held

    def _answer(self, queue: Queue, held: list[Delivery]) -> None:
        one = self._rng.choice(held)
        unit = lambda: self._log.commit([Unit((queue._ack_entry(held),))])  # noqa: E731
        acks: Sequence[Answer] = (*((held, lambda: queue.ack(held)),) * 8, (held, unit))
        others = (*self._answers(queue, held, one), ([], queue.stats))
        if self._rng.random() < 0.75:
            self._say(self._rng.choice(acks), is_ack=True)
        else:
            self._say(self._rng.choice(others[5:]), is_ack=False)

    def _say(self, answer: Answer, *, is_ack: bool) -> None:
        about, call = answer
        said = {(each.place, each.run.delivery) for each in about}
        known = self._world.known()
        fresh = said - known.unknown
        known.unknown |= fresh  # until it returns
        known.named.update(said)
        known.together += [frozenset(said)] if is_ack else []
        try:
            call()
        except LeaseExpiredError:
            self._world.done["late"] += 1
            known = self._world.known()
            known.late |= said if is_ack else set()
            known.unknown -= fresh
        except ConflictError:
            self._world.done["given up"] += 1
        else:
            self._world.done["answered"] += len(about)
            known = self._world.known()
            known.unknown -= fresh
            if is_ack:
                known.acked |= said
                known.done |= dict(said)
