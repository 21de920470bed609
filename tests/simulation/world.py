"""One seeded run: several boots of one machine, with writers and readers that come and go.

What goes wrong here and nowhere else: another process runs, a process dies, or the machine does,
between any two calls to the disk.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from functools import partial

import pyarrow as pa

from kmq_storage.environment import Environment
from kmq_storage.errors import UnavailableError
from kmq_storage.format.entries import GroupOffsetsEntry, ProducerEntry, TopicEntry
from kmq_storage.format.records import TIMESTAMP_TYPE, stored_schema
from kmq_storage.log.binding import DuplicateCommitError, Unit
from kmq_storage.log.commit_log import CommitLog, WrittenCommit
from kmq_storage.log.local_log import LocalLog
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager
from kmq_storage.log.store_files import open_identity
from tests.simulation.disk import Faults, SimulatedDisk
from tests.simulation.oracle import Follower, Oracle
from tests.simulation.scheduler import Scheduler, Task

_FILE_BYTES = 8 * 1024
_TOPICS = (("orders", 2), ("audit", 1))
_ATTEMPTS = 6


class World:
    """A machine, what runs on it, and what must hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(self.rng)
        self.oracle = Oracle()
        self.disk = SimulatedDisk(self.scheduler, Faults())
        self.identity = open_identity(
            self.disk, self.environment(0), create=True, log_file_bytes=_FILE_BYTES
        )
        self.topics = {name: self.rng.randbytes(16) for name, _ in _TOPICS}
        log = self.open(0)
        for name, partitions in _TOPICS:
            log.commit([Unit((TopicEntry(self.topics[name], name, partitions, {}),))])
        self._incarnation = 0

    def environment(self, number: int) -> Environment:
        """Clock, ids and randomness of one process; the clocks of two differ."""
        rng, skew = random.Random(self.rng.getrandbits(64)), self.rng.uniform(-5, 5)
        return Environment(
            now_ns=lambda: int((self.scheduler.clock + skew) * 1e9),
            monotonic=lambda: self.scheduler.clock,
            sleep=lambda seconds: self.scheduler.pause(seconds, stay=0.0),
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
            rng=rng,
        )

    def open(self, number: int, *, durable: bool = True) -> CommitLog:
        """A handle of its own, as another process has it."""
        return LocalLog(self.disk, self.identity, self.environment(number), durable=durable)

    def boot(self) -> None:
        """Writers and readers until they are done, a process is killed or the machine crashes."""
        tasks = [Task(f"writer {n}", partial(Writer(self, n).run)) for n in range(3)]
        tasks += [Task(f"reader {n}", partial(self._read, n)) for n in range(2)]
        self.disk.faults = random_faults(self.rng)
        begin = self.scheduler.steps
        self.scheduler.crash_at = begin + self.rng.randrange(1, 4_000)
        for task in tasks:
            if self.rng.random() < 0.4:
                task.kill_at = begin + self.rng.randrange(1, 2_000)
        self.scheduler.run(tasks)
        self.scheduler.crash_at = -1
        self.disk.faults = Faults()
        if self.scheduler.failures:
            raise self.scheduler.failures[0]
        if self.scheduler.crashed or self.rng.random() < 0.5:
            self.disk.crash()

    def _read(self, number: int) -> None:
        log, follower = self.open(number), Follower(self.oracle, self.disk)
        for _ in range(self.rng.randrange(5, 15)):
            try:
                follower.follow(log.refresh())
                log.wait(follower.lsn, 0.01)
            except UnavailableError:
                continue

    def next_incarnation(self) -> int:
        """An epoch above all that were given out before."""
        self._incarnation += 1
        return self._incarnation

    def finish(self) -> str:
        """Check what is left on a machine without faults; the digest of all that happened."""
        follower = Follower(self.oracle, self.disk)
        log = self.open(0)
        follower.follow(log.refresh())
        log.commit([Unit((ProducerEntry("last", 1, 0),))])
        state = self.open(0).refresh()
        follower.follow(state)
        self.oracle.check_all(follower.seen, state.lsn)
        return hashlib.sha256("\n".join(self.oracle.history).encode()).hexdigest()


class Writer:
    """A producer: some commits, each retried with the same sequence until it is known to be in."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        self._name = f"w{number}"
        self._epoch = world.next_incarnation()
        self._number = number

    def run(self) -> None:
        """Commit a few times, then end."""
        durable = self._rng.random() < 0.7
        log = self._world.open(self._number, durable=durable)
        for sequence in range(self._rng.randrange(2, 8)):
            try:
                self._write(log, sequence)
            except UnavailableError as error:
                self._world.oracle.history.append(f"{self._name}: {error.kind}")

    def _write(self, log: CommitLog, sequence: int) -> None:
        tag = f"{self._name}.{self._epoch}.{sequence}"
        plan = [self._plan("orders", 2, tag), self._plan("audit", 1, tag)]
        values = [value for _, _, mine in plan for value in mine]
        self._world.oracle.sizes[tag.encode()] = len(values)
        for attempt in range(_ATTEMPTS):
            try:
                units = [self._unit(log, *part) for part in plan]
                units.append(Unit((ProducerEntry(self._name, self._epoch, sequence),)))
                commit = self._append(log, units)
                if log.durable or self._rng.random() < 0.3:
                    log.sync(commit)
                    self._world.oracle.acknowledge(values, commit.lsn)
                if self._rng.random() < 0.9:
                    return  # else the answer is lost, and the writer tries again
            except UnavailableError:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _append(self, log: CommitLog, units: list[Unit]) -> WrittenCommit:
        try:
            return log.append(units)
        except DuplicateCommitError as duplicate:
            return log.written_commit(duplicate.lsn)

    def _plan(self, topic: str, partitions: int, tag: str) -> tuple[str, int, list[bytes]]:
        values = [
            f"{tag}/{topic}/{n}/".encode() + b"x" * self._rng.randrange(400)
            for n in range(self._rng.randrange(1, 4))
        ]
        return topic, self._rng.randrange(partitions), values

    def _unit(self, log: CommitLog, topic: str, partition: int, values: list[bytes]) -> Unit:
        stager = Stager(
            log.disk,
            log.environment.new_uuid,
            sync=log.durable,
            inline_bytes_max=self._rng.choice((0, 1_000, 100_000)),
        )
        topic_id = self._world.topics[topic]
        records = PartitionRecords(topic, topic_id, partition, (_batch(values),))
        placed = stager.place(records, room=100_000)
        return Unit(placed.entries + self._offsets(log, topic), placed.bodies, synced=log.durable)

    def _offsets(self, log: CommitLog, topic: str) -> tuple[GroupOffsetsEntry, ...]:
        if not log.durable or self._rng.random() < 0.5:
            return ()
        ends = log.refresh().topic(topic).offsets()
        pairs = tuple((number, end) for number, (_, end) in ends.items())
        return (GroupOffsetsEntry("g", -1, self._world.topics[topic], pairs),)


def _batch(values: list[bytes]) -> SizedBatch:
    columns = [pa.array([0] * len(values), TIMESTAMP_TYPE), pa.array(values, pa.binary())]
    batch = pa.RecordBatch.from_arrays(columns, schema=stored_schema(0))
    return SizedBatch(batch, sum(map(len, values)))


def random_faults(rng: random.Random) -> Faults:
    """None in some boots, a few in others."""
    return Faults(
        sync=rng.choice((0.0, 0.0, 0.05, 0.2)),
        full=rng.choice((0.0, 0.0, 0.05)),
        garbage=rng.choice((0.0, 0.0, 0.0, 0.003)),
        drop_pages=rng.random() < 0.5,
    )


def simulate(seed: int) -> str:
    """Run one seed; the digest of its history, or the first thing that must not be."""
    world = World(seed)
    for _ in range(world.rng.randrange(1, 4)):
        world.boot()
    return world.finish()
