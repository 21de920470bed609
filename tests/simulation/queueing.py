"""Receivers and senders of a queue among simulated processes: they stall, die and answer late."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from kmq_spark.client.queues.delivery import Delivery
from kmq_spark.client.queues.queue import Queue
from kmq_storage.errors import ConflictError, CorruptionError, LeaseExpiredError, UnavailableError
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.format.schedule_entry import Schedule, ScheduleEntry
from kmq_storage.format.uniq_entry import Uniq, UniqEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.binding.uniq_binding import StoredBeforeError
from kmq_storage.log.staging import PartitionRecords, Stager, file_ids
from kmq_storage.log.state.queues.rows import NEVER
from kmq_storage.names import queue_log
from tests.simulation.cards import Place
from tests.simulation.oracle import Record
from tests.simulation.writer import batch_of

if TYPE_CHECKING:
    from kmq_storage.log.commit_log import CommitLog
    from tests.simulation.queue_world import Queueing

#: About which deliveries, and what is called.
Answer: TypeAlias = tuple[Sequence[Delivery], Callable[[], object]]

JOBS = "jobs"
_TURNS, _SENT = (3, 12), (1, 6)
_DIGESTS = 6


class Receivers:
    """What receivers with durable handles were told: it must stay true."""

    def __init__(self) -> None:
        #: Who was told that it holds a record, by the delivery.
        self.holders: dict[tuple[Place, int], int] = {}
        #: The deliveries that were finished, or given back with an answer that was accepted.
        self.accepted: set[tuple[Place, int]] = set()
        #: What was sent to the queue, by offset.
        self.sent: dict[int, Record] = {}
        #: Where a sender was told that its record is already, by digest and offset.
        self.doubles: set[tuple[bytes, int]] = set()


class Receiver:
    """One process that receives and answers, through a handle of its own."""

    def __init__(self, world: Queueing, number: int) -> None:
        self._world = world
        self._number = number
        self._rng = random.Random(world.rng.getrandbits(64))
        self._kept: list[Delivery] = []

    def run(self) -> None:
        """Take part for some turns, then end."""
        self._log = log = self._world.open(durable=self._rng.random() < 0.8, writes=True)
        queue = None
        for _ in range(self._rng.randrange(*_TURNS)):
            try:
                queue = queue or Queue(log, JOBS)
                self._turn(queue)
            except UnavailableError:
                self._world.done["unanswered"] += 1
            except CorruptionError:
                if log.durable or not self._world.machine.failed:
                    raise

    def _turn(self, queue: Queue) -> None:
        held = queue.receive(self._rng.randrange(1, 5))
        self._world.done["received"] += len(held)
        for each in held:
            self._world.check_delivery(each, self._number, durable=self._log.durable)
        if not held:
            self._world.rest(self._log, self._log.state.lsn)
        if self._rng.random() < 0.3:
            self._world.scheduler.stall()  # perhaps for longer than the lock
        if self._rng.random() < 0.3:
            held, self._kept = self._kept + held, []
        elif self._rng.random() < 0.3:
            self._kept += held  # to be answered late, or twice, or never
        if held:
            self._answer(queue, held)

    def _answer(self, queue: Queue, held: list[Delivery]) -> None:
        about, call = self._rng.choice(self._answers(queue, held, self._rng.choice(held)))
        try:
            call()
            self._world.done["answered"] += len(about)
            if self._log.durable:
                told = {(each.place, each.run.delivery) for each in about}
                self._world.receivers.accepted |= told
        except LeaseExpiredError:
            self._world.done["late"] += 1
        except ConflictError:
            self._world.done["given up"] += 1  # what it staged was taken for an orphan

    def _answers(self, queue: Queue, held: list[Delivery], one: Delivery) -> Sequence[Answer]:
        """What it may answer: about which, and how."""
        return (
            *((held, lambda: queue.ack(held)),) * 4,
            ([one], lambda: queue.ack(one)),
            *(([one], lambda: queue.nack(one)),) * 2,
            ([one], lambda: queue.nack(one, delay=5.0)),
            ([one], lambda: queue.reject(one, "no good")),
            ([one], lambda: queue.extend(one, 20.0)),
            ([], lambda: self._redrive(queue)),
        )

    def _redrive(self, queue: Queue) -> None:
        self._world.done["redriven"] += queue.redrive(3)


class Sender:
    """One process that sends records to the queue itself, some for later, some before others."""

    def __init__(self, world: Queueing) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        self._digests: list[bytes] = []

    def run(self) -> None:
        """Send a few times, then end."""
        log = self._world.open(writes=True)
        for _ in range(self._rng.randrange(*_SENT)):
            count = self._rng.randrange(*self._world.sent_at_once)
            records = [self._world.oracle.send(None, b"job") for _ in range(count)]
            try:
                commit = log.commit([self._unit(log, records)])
            except UnavailableError:
                continue
            except ConflictError:
                continue  # what it staged was taken for an orphan
            except StoredBeforeError as error:
                self._note_doubles(log, error)
                continue
            base = next(e.base_offset for e in commit.entries if isinstance(e, RecordsEntry))
            self._world.receivers.sent.update(enumerate(records, base))

    def _unit(self, log: CommitLog, records: list[Record]) -> Unit:
        queue_id = self._world.queue_id
        room = self._rng.choice((0, 1_000))
        stager = Stager(log.files, file_ids(log), sync=True)
        part = PartitionRecords(queue_log(JOBS), queue_id, 0, (batch_of(records),))
        placed = stager.place(part, room=room)
        now = log.environment.now_us()
        special = tuple(
            Schedule(
                row,
                now + self._rng.choice((0, 1_000_000, 60_000_000)),
                self._expiry(now),
                self._rng.choice(self._world.priorities),
            )
            for row in range(len(records))
            if self._rng.random() < 0.4
        )
        schedules = (ScheduleEntry(queue_id, 0, special),) if special else ()
        beside = (*schedules, *self._uniqs(now, len(records)))
        return Unit((*placed.entries, *beside), placed.bodies)

    def _expiry(self, now: int) -> int:
        if not self._world.expires:
            return NEVER
        return self._rng.choice((NEVER, now + 200_000, now + 2_000_000, now + 60_000_000))

    def _uniqs(self, now: int, rows: int) -> tuple[UniqEntry, ...]:
        """A few digests, so that most come more than once."""
        if not self._world.choosy:
            return ()
        digests = self._rng.sample(range(_DIGESTS), rows)
        self._digests = [bytes([n]) * 16 for n in digests]
        uniqs = tuple(Uniq(0, row, digest) for row, digest in enumerate(self._digests))
        return (UniqEntry(self._world.queue_id, now, uniqs),)

    def _note_doubles(self, log: CommitLog, error: StoredBeforeError) -> None:
        """Where the first ones are is for ever so once the commit that has them is on disk."""
        self._world.done["doubles"] += len(error.places)
        with suppress(UnavailableError):
            log.sync(error.lsn)
            for (_, row), place in error.places.items():
                assert place is not None, "no other unit is in the commit"
                self._world.receivers.doubles.add((self._digests[row], place[1]))
