"""Two instances of one loop: each takes records, makes others of them, and commits all of it once.

Like `producer.transaction()`: one unit, with the producer's sequence in the same commit; after an
unknown outcome the same again; after a refusal nothing of it, ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmq_spark.client.queues.delivery import Delivery, runs_of_deliveries
from kmq_spark.client.queues.queue import Queue
from kmq_spark.client.sending.producer import _open_epoch
from kmq_storage.errors import (
    ConflictError,
    FencedError,
    LeaseExpiredError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from kmq_storage.format.entries import Entry, GroupOffsetsEntry, ProducerEntry
from kmq_storage.format.queue_entries import ACK
from kmq_storage.log.binding.binding import RefusedError, Unit
from kmq_storage.queues import handing
from tests.simulation.cards import Place
from tests.simulation.oracle import Part, Record
from tests.simulation.queueing import JOBS
from tests.simulation.writer import Writer

if TYPE_CHECKING:
    from tests.simulation.queue_world import Queueing
    from tests.simulation.world import WatchedLog

LOOP, INPUT = "loop", ("orders", 0)
OUTPUTS: tuple[Part, ...] = (("results", 0), ("ledger", 0))
_TURNS, _ATTEMPTS = (4, 16), 4


@dataclass(frozen=True)
class _Work:
    """One transaction: what it stores, and what stands in its one unit."""

    plan: Mapping[Part, list[Record]]
    whole: Unit


class Looper(Writer):
    """One instance: whoever is opened later fences it."""

    def __init__(self, world: Queueing, number: int) -> None:
        super().__init__(world, number)
        self._queueing = world
        self._epoch = self._sequence = -1
        self._queue: Queue | None = None

    def run(self) -> None:
        """Go round some times, until it is fenced, or nobody knows what became of its commit."""
        log = self._world.open(writes=True)
        for _ in range(self._rng.randrange(*_TURNS)):
            try:
                work = self._work(log)
            except UnavailableError:
                continue
            if work is not None and not self._is_over(log, work):
                return

    # --- gathering ----------------------------------------------------------------------

    def _work(self, log: WatchedLog) -> _Work | None:
        """What it would commit now; None when there is nothing, or it is aborted."""
        if self._queue is None:
            self._queue = Queue(log, JOBS)
        if self._epoch < 0:
            self._epoch = _open_epoch(log, LOOP)
        offsets, values = self._from_topic(log)
        held = self._queue.receive(2) if self._rng.random() < 0.5 else []
        for each in held:
            self._queueing.check_delivery(each, -self._number, durable=True)
        values += [made_of(each.place, each.run.delivery) for each in held]
        if self._rng.random() < 0.3:
            self._world.scheduler.stall()
        if not values:
            self._world.rest(log, log.state.lsn)
            return None
        plan = {part: [self._world.oracle.send(None, v) for v in values] for part in OUTPUTS}
        units = [self._unit(log, *part, mine) for part, mine in plan.items()]
        if self._rng.random() < 0.2:
            self._world.done["aborted"] += 1
            return None
        return _Work(plan, self._whole(log, units, offsets, held))

    def _from_topic(self, log: WatchedLog) -> tuple[tuple[Entry, ...], list[bytes]]:
        """The offset behind the next records of its input, and what it makes of them."""
        state = log.refresh()
        topic_id = self._world.topics[INPUT[0]]
        part = state.topic(INPUT[0]).partition(INPUT[1])
        known = state.group_offsets(LOOP).get(topic_id, {}).get(INPUT[1], 0)
        begin = part.readable_from(known)
        end = min(part.end, begin + self._rng.randrange(4))
        entry = GroupOffsetsEntry(LOOP, -1, topic_id, ((INPUT[1], end),))
        return ((entry,) if begin < end else ()), [b"o:%d" % offset for offset in range(begin, end)]

    def _whole(
        self, log: WatchedLog, units: list[Unit], offsets: tuple[Entry, ...], held: list[Delivery]
    ) -> Unit:
        entries = [entry for unit in units for entry in unit.entries]
        entries += offsets
        if held:
            queue = handing.live_queue(log.state, self._queueing.queue_id, JOBS)
            entries.append(handing.answer(log, queue, ACK, runs_of_deliveries(held)))
        bodies = tuple(body for unit in units for body in unit.bodies)
        return Unit(tuple(entries), bodies, synced=all(unit.synced for unit in units))

    # --- committing ---------------------------------------------------------------------

    def _is_over(self, log: WatchedLog, work: _Work) -> bool:
        """Whether it is known what became of it; False when this instance must not go on."""
        try:
            self._commit(log, work)
        except UnavailableError:
            self._world.done["unknown"] += 1
            return False
        except FencedError:
            self._world.done["fenced"] += 1
            return False
        return True

    def _commit(self, log: WatchedLog, work: _Work) -> None:
        self._sequence += 1
        units = [work.whole, Unit((ProducerEntry(LOOP, self._epoch, self._sequence),))]
        for attempt in range(_ATTEMPTS):
            try:
                commit = self._append(log, units, work.plan)
                if commit is not None:
                    log.sync(commit)
                    self._world.oracle.acknowledge(self._places(commit, work.plan), commit.lsn)
                    self._world.done["transactions"] += 1
                if self._rng.random() < 0.9:
                    return  # else the answer is lost, and it tries again
            except RefusedError as refused:
                if attempt:
                    raise UnavailableError("what refuses it may be itself") from refused
                self._check_refused(refused)
                return
            except UnavailableError:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _check_refused(self, refused: RefusedError) -> None:
        aborts = (LeaseExpiredError, OffsetOutOfRangeError, ConflictError)
        if refused.unit or not isinstance(refused.cause, aborts):
            raise refused.cause
        self._world.done["refused"] += 1


def made_of(place: Place, delivery: int) -> bytes:
    """The value of what is made of a record of the queue in one of its deliveries."""
    (topic_id, partition), offset = place
    return b"q:%d:%d:%s:%d" % (partition, offset, topic_id.hex().encode(), delivery)
