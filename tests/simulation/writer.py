"""A producer: some commits, each retried with the same sequence until it is known to be in."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from kmq_storage.errors import ConflictError, OffsetOutOfRangeError, UnavailableError
from kmq_storage.format.entries import GroupOffsetsEntry, ProducerEntry, RecordsEntry
from kmq_storage.format.records import KEY, TIMESTAMP_TYPE, stored_schema
from kmq_storage.log.binding.binding import DuplicateCommitError, RefusedError, Unit
from kmq_storage.log.commit_log import CommitLog, WrittenCommit
from kmq_storage.log.staging import PartitionRecords, SizedBatch, Stager, file_ids
from tests.simulation.oracle import Part, Place, Record

if TYPE_CHECKING:
    from tests.simulation.world import WatchedLog, World

_ATTEMPTS = 6
_SLEEPS_AFTER_STAGING = 0.1
_KEYS = (b"a", b"b", b"c", b"d")


class Writer:
    """One process that writes through one handle."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        self._name = f"w{number}"
        self._epoch = world.next_incarnation()
        self._number = number

    def run(self) -> None:
        """Commit a few times, then end."""
        durable = self._rng.random() < self._world.durable_writers
        log = self._world.open(durable=durable, writes=True)
        for sequence in range(self._rng.randrange(*self._world.size.commits)):
            try:
                self._write(log, sequence)
            except UnavailableError as error:
                self._world.oracle.history.append(f"{self._name}: {error.kind}")

    def _write(self, log: WatchedLog, sequence: int) -> None:
        plan = self._plan()
        offsets = self._offsets(log)
        for attempt in range(_ATTEMPTS):
            try:
                units = [self._unit(log, *part, mine) for part, mine in plan.items()]
                units.append(Unit((*offsets, ProducerEntry(self._name, self._epoch, sequence))))
                if self._rng.random() < _SLEEPS_AFTER_STAGING:
                    self._world.scheduler.stall()
                commit = self._append(log, units, plan)
                if commit is None:
                    return
                if log.durable or self._rng.random() < 0.3:
                    log.sync(commit)
                    self._world.oracle.acknowledge(self._places(commit, plan), commit.lsn)
                if self._rng.random() < 0.9:
                    return  # else the answer is lost, and the writer tries again
            except RefusedError as refused:
                if isinstance(refused.cause, ConflictError):
                    self._world.done["given up"] += 1  # what it staged was taken for an orphan
                    continue
                if not isinstance(refused.cause, OffsetOutOfRangeError):
                    raise
                offsets = ()  # the partition was trimmed meanwhile
            except UnavailableError:
                if attempt == _ATTEMPTS - 1:
                    raise

    def _append(
        self, log: WatchedLog, units: list[Unit], plan: Mapping[Part, list[Record]]
    ) -> WrittenCommit | None:
        try:
            log.watch.sending = plan
            return log.append(units)
        except DuplicateCommitError as duplicate:
            try:
                return log.written_commit(duplicate.lsn)
            except OffsetOutOfRangeError:
                return None  # collected: it was on disk
        finally:
            log.watch.sending = {}

    def _places(
        self, commit: WrittenCommit, plan: Mapping[Part, list[Record]]
    ) -> dict[Place, Record]:
        places = {}
        for entry in commit.entries:
            if isinstance(entry, RecordsEntry):
                part = (self._world.name_of(entry.topic_id), entry.partition)
                for offset, record in enumerate(plan[part], entry.base_offset):
                    places[*part, offset] = record
        return places

    def _plan(self) -> dict[Part, list[Record]]:
        """The records of one commit: some for each of two or three partitions."""
        parts: list[Part] = [("orders", self._rng.randrange(2)), ("audit", 0)]
        if self._rng.random() < 0.6:
            parts.append(("profiles", self._rng.randrange(2)))
        return {
            part: [self._record(part[0]) for _ in range(self._rng.randrange(1, 4))]
            for part in parts
        }

    def _record(self, topic: str) -> Record:
        value = b"x" * self._rng.randrange(self._world.file_bytes // 20)
        if topic != "profiles":
            return self._world.oracle.send(None, value)
        deletes = self._rng.random() < 0.3
        return self._world.oracle.send(self._rng.choice(_KEYS), None if deletes else value)

    def _unit(self, log: CommitLog, topic: str, partition: int, mine: list[Record]) -> Unit:
        stager = Stager(log.files, file_ids(log), sync=log.durable)
        room = self._rng.choice((0, 1_000, 100_000))
        batch = self._world.batch_of(mine)
        records = PartitionRecords(topic, self._world.topics[topic], partition, (batch,))
        placed = stager.place(records, room=room)
        return Unit(placed.entries, placed.bodies, synced=log.durable)

    def _offsets(self, log: CommitLog) -> tuple[GroupOffsetsEntry, ...]:
        if not log.durable or self._rng.random() < 0.5:
            return ()
        topic = self._rng.choice(("orders", "audit"))
        ends = log.refresh().topic(topic).offsets()
        pairs = tuple((number, end) for number, (_, end) in ends.items())
        group = f"g{self._number}"
        return (GroupOffsetsEntry(group, -1, self._world.topics[topic], pairs),)


def batch_of(records: list[Record]) -> SizedBatch:
    """What is stored of records."""
    times = pa.array([record.identity for record in records], TIMESTAMP_TYPE)
    keys = [record.key for record in records]
    values = pa.array([record.value for record in records], pa.binary())
    size = sum(len(r.key or b"") + len(r.value or b"") for r in records)
    if any(key is not None for key in keys):
        columns, schema = [times, pa.array(keys, pa.binary()), values], stored_schema(KEY)
    else:
        columns, schema = [times, values], stored_schema(0)
    return SizedBatch(pa.RecordBatch.from_arrays(columns, schema=schema), size)
