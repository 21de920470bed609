"""Two instances of one loop: each takes records, makes others of them, and commits all of it once.

They use the client's own producer and its transactions, whose memory is so small that many records
go into files before the commit. Its threads don't run: who waits for a commit makes it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kmq_spark.client.queues.delivery import Delivery
from kmq_spark.client.queues.queue import Queue
from kmq_spark.client.sending import committer, encoder, pending
from kmq_spark.client.sending.producer import Producer, ProducerSettings
from kmq_spark.client.sending.transaction import Transaction
from kmq_storage import limits
from kmq_storage.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    FencedError,
    KmqTimeoutError,
    OffsetOutOfRangeError,
    TransactionAbortedError,
    UnavailableError,
)
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.commit_log import WrittenCommit
from tests.simulation.cards import Place
from tests.simulation.oracle import Part, Record
from tests.simulation.queueing import JOBS
from tests.simulation.threads import TaskSleepers

if TYPE_CHECKING:
    from tests.simulation.queue_world import Queueing
    from tests.simulation.world import Limit, WatchedLog

LOOP, INPUT = "loop", ("orders", 0)
OUTPUTS: tuple[Part, ...] = (("results", 0), ("ledger", 0))
_TURNS = (4, 16)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SETTINGS = ProducerSettings(
    name=LOOP,
    transactional=True,
    linger=0.005,
    batch_bytes=1_000,
    max_pending_bytes=100_000,
    partitioner="murmur2",
    durable=True,
)
#: What the client has otherwise here. A killed task unwinds as after a signal; uploads to a bucket
#: are made by who needs them.
LIMITS: tuple[Limit, ...] = (
    (limits, "TRANSACTION_MEMORY_BYTES", 200),
    (committer, "can_be_interrupted", lambda: True),
    (encoder, "Uploads", lambda _: None),
    (pending, "Sleepers", TaskSleepers),
)
#: Why a transaction may be aborted.
_ABORTS = (
    FencedError,
    OffsetOutOfRangeError,
    ConflictError,
    UnavailableError,
    KmqTimeoutError,  # it was open for too long
)


class _ChangesItsMindError(Exception):
    pass


class Looper:
    """One instance: whoever is opened later fences it."""

    def __init__(self, world: Queueing, number: int) -> None:
        self._world = world
        self._number = number
        self._rng = random.Random(world.rng.getrandbits(64))
        self._producer: Producer | None = None
        self._queue: Queue | None = None

    def run(self) -> None:
        """Go round some times, until it is fenced, or nobody knows what became of its commit."""
        log = self._world.open(writes=True)
        for _ in range(self._rng.randrange(*_TURNS)):
            try:
                self._turn(log)
            except FencedError:
                self._world.done["fenced"] += 1
                return
            except CommitOutcomeUnknownError:
                self._world.done["unknown"] += 1
                if self._producer is not None:
                    return
            except UnavailableError:
                continue

    def _turn(self, log: WatchedLog) -> None:
        if self._producer is None:
            self._queue, self._producer = Queue(log, JOBS), self._opened(log)
        offsets, values = self._from_topic(log)
        held = self._received()
        values += [made_of(each.place, each.run.delivery) for each in held]
        if not values:
            self._world.rest(log, log.state.lsn)
            return
        plan = {part: [self._world.oracle.send(None, v) for v in values] for part in OUTPUTS}
        log.watch.sending = plan
        try:
            self._commit(plan, offsets, held)
        except TransactionAbortedError as aborted:
            self._world.aborted.update(each.identity for mine in plan.values() for each in mine)
            self._check_aborted(aborted)
        except _ChangesItsMindError:
            self._world.aborted.update(each.identity for mine in plan.values() for each in mine)
            self._world.done["aborted"] += 1
        finally:
            log.watch.sending = {}

    def _opened(self, log: WatchedLog) -> Producer:
        producer = Producer(log, _SETTINGS)
        producer._pending.commit_here = producer._commits.try_here  # there is no other thread
        producer._committer._log = _Unanswered(log, self._rng)  # type: ignore[assignment]
        return producer

    def _from_topic(self, log: WatchedLog) -> tuple[dict[int, int], list[bytes]]:
        """The offset behind the next records of its input, and what it makes of them."""
        state = log.refresh()
        topic_id = self._world.topics[INPUT[0]]
        part = state.topic(INPUT[0]).partition(INPUT[1])
        known = state.group_offsets(LOOP).get(topic_id, {}).get(INPUT[1], 0)
        begin = part.readable_from(known)
        end = min(part.end, begin + self._rng.randrange(4))
        offsets = {INPUT[1]: end} if begin < end else {}
        return offsets, [b"o:%d" % offset for offset in range(begin, end)]

    def _received(self) -> list[Delivery]:
        assert self._queue is not None
        held = self._queue.receive(2) if self._rng.random() < 0.5 else []
        for each in held:
            self._world.check_delivery(each, -self._number, durable=True)
        return held

    # --- one transaction ----------------------------------------------------------------

    def _commit(
        self, plan: Mapping[Part, list[Record]], offsets: dict[int, int], held: list[Delivery]
    ) -> None:
        producer = self._producer
        assert producer is not None
        with producer.transaction() as transaction:
            sent = self._send(transaction, plan)
            if offsets:
                transaction.commit_offsets({LOOP: {INPUT[0]: offsets}})
            transaction.ack(held)
            gathered = transaction._gathered
            assert gathered is not None, "it has begun"
            self._world.done["in files"] += bool(gathered.in_files)
            if self._rng.random() < 0.3:
                self._world.scheduler.stall()  # what it staged may be taken for an orphan
            if self._rng.random() < 0.2:
                raise _ChangesItsMindError
        written = producer._committer._begun
        assert written is not None, "it was committed"
        if written.commit is not None:  # else it was collected, and nobody knows where it is
            placed = {future.result()[:3]: record for future, record in sent}
            self._world.oracle.acknowledge(placed, written.commit.lsn)
        self._world.done["transactions"] += 1

    def _send(
        self, transaction: Transaction, plan: Mapping[Part, list[Record]]
    ) -> list[tuple[Any, Record]]:
        sent = []
        for (topic, _), records in plan.items():
            for record in records:
                when = _EPOCH + timedelta(microseconds=record.identity)
                sent.append((transaction.send(topic, record.value, timestamp=when), record))
        return sent

    def _check_aborted(self, aborted: TransactionAbortedError) -> None:
        cause = aborted.__cause__
        if not isinstance(cause, _ABORTS):
            raise aborted
        self._world.done["refused"] += 1


class _Unanswered:
    """A log some of whose answers to commits don't arrive."""

    def __init__(self, log: WatchedLog, rng: random.Random) -> None:
        self._log = log
        self._rng = rng

    def append(self, units: Sequence[Unit]) -> WrittenCommit:
        """As the log's; the producer finds out by itself what became of it."""
        commit = self._log.append(units)
        if self._rng.random() < 0.1:
            raise CommitOutcomeUnknownError("the answer is lost")
        return commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def made_of(place: Place, delivery: int) -> bytes:
    """The value of what is made of a record of the queue in one of its deliveries."""
    (topic_id, partition), offset = place
    return b"q:%d:%d:%s:%d" % (partition, offset, topic_id.hex().encode(), delivery)
