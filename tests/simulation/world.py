"""One seeded run: several boots, with writers, readers and maintainers.

What goes wrong here and nowhere else: another process runs, a process stalls or dies, or the
machine does, between any two calls to the disk. In a bucket (`bucket_world`) each process is on
a host of its own, and between any two requests.
"""

from __future__ import annotations

import math
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar, TypeAlias
from unittest.mock import patch

from kmq_storage import limits
from kmq_storage.environment import Environment
from kmq_storage.errors import CorruptionError, UnavailableError
from kmq_storage.format.entries import ProducerEntry, TopicEntry
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.checkpoints import paging
from kmq_storage.log.commit_log import CommitLog
from kmq_storage.log.cursor import Cursor
from kmq_storage.log.disk.local_log import LocalLog
from kmq_storage.log.framing import Framed
from kmq_storage.log.index import manifest
from kmq_storage.log.staging import SizedBatch
from kmq_storage.log.store_files import open_identity
from kmq_storage.maintenance import maintain
from tests.simulation.audit import check_checkpoints, check_counts, files_of
from tests.simulation.disk import Faults, SimulatedDisk
from tests.simulation.follower import Follower
from tests.simulation.lineage import told
from tests.simulation.maintainer import Maintainer
from tests.simulation.oracle import Oracle, Record
from tests.simulation.scheduler import Scheduler, Task
from tests.simulation.sizes import SIZES, Size
from tests.simulation.watch import Watch
from tests.simulation.writer import Writer, batch_of

#: In some worlds nearly nothing is synced for long, in some everything at once.
_DURABLE_WRITERS = (0.0, 0.7, 0.7, 1.0)
#: Names, partitions and settings.
_TOPICS = (
    ("orders", 2, {}),
    ("audit", 1, {"retention": 30.0}),
    ("profiles", 2, {"cleanup": "compact"}),
)
#: The clocks of two processes differ by at most twice this (seconds).
_SKEW = 5.0
#: And some go wrong by so much, from one look to the next.
_JUMPS = (0.0, 0.0, -3_600.0, 3_600.0, 10 * 365 * 86_400.0)
_TOMBSTONE_DELAY = 60.0
#: How old a file is before it may be taken for an orphan: shorter than many stalls, or for ever.
_ORPHAN_AGES = (30.0, 1e9)
_REBASE_SECONDS = 5.0
#: Module, name, value.
Limit: TypeAlias = tuple[Any, str, Any]
#: So small that a few records make several batches, segments and pages.
LIMITS: tuple[Limit, ...] = (
    (limits, "BATCH_ROWS_MAX", 5),
    (limits, "SEAL_AFTER", 10.0),
    (limits, "REBASE_SECONDS", _REBASE_SECONDS),
    (limits, "CHECKPOINT_COMMITS", 5),
    (limits, "COLLECT_GRACE", 20.0),
    (limits, "COLLECTED_LOG_GRACE", 20.0),  # shorter than many stalls
    (limits, "TOMBSTONE_DELAY", _TOMBSTONE_DELAY),
    (paging, "PAGE_ROWS", 4),
    (paging, "_PAGE_ROWS_MIN", 2),
    (manifest, "_PAGES_KEPT", 2),
    (maintain, "_MERGED", 3),
)


class WatchedLog(LocalLog):
    """A commit log that tells the oracle of each commit before it is written."""

    watch: Watch

    def _open(self) -> None:
        super()._open()
        write = self._end.write

        def tell_and_write(commit: Framed, *, synced: bool) -> Cursor:
            self.watch.tell(self.known_state, commit.entries)
            return write(told(commit, self.watch.tell_next), synced=synced)

        self._end.write = tell_and_write  # type: ignore[method-assign]


class World:
    """A machine, what runs on it, and what must hold."""

    #: Before which step of a boot the machine stops, and a process is killed.
    crash_steps, tidy_steps, kill_steps = 12_000, 40_000, 6_000
    #: How long log files are: some have many commits, some few.
    log_file_bytes: tuple[int, ...] = (3 * 1024, 8 * 1024)
    sizes: tuple[Size, ...] = SIZES
    #: How many steps of others a stall lasts at most.
    stalled_steps = 600
    #: How long collection spares files, and how long ago a look was that finds no newer checkpoint.
    graces: tuple[float, float] = (0.0, 20.0)
    look_age = _REBASE_SECONDS
    #: How likely a step of a process becomes a long one.
    sleepiness: tuple[float, ...] = (0.0, 0.003, 0.01)
    #: Whether processes write without waiting for the disk, and read what is not on it.
    knows_os_durability = True
    #: What else has another value than usual.
    limits: ClassVar[tuple[Limit, ...]] = ()
    #: Whether processes look for damage, and repair it.
    repairs = False

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.scheduler = Scheduler(self.rng, self.stalled_steps)
        self.size = self.rng.choice(self.sizes)
        self.oracle = Oracle(
            lambda: self.scheduler.clock,
            compacted=frozenset(["profiles"]),
            tombstone_delay=_TOMBSTONE_DELAY - 2 * _SKEW,
        )
        self.done: Counter[str] = Counter()
        self.file_bytes = self.rng.choice(self.log_file_bytes)
        self.orphan_age = self.rng.choice(_ORPHAN_AGES)
        self._make_place()
        #: What readers may go on reading, and since when they have it.
        self._held: dict[int, tuple[float, set[str]]] = {}
        #: How long collection spares files, for all of a boot (seconds).
        self.grace = 0.0
        self._always_spared = True
        self.identity = open_identity(
            self.files, self.environment(), create=True, log_file_bytes=self.file_bytes
        )
        self.topics = {name: self.rng.randbytes(16) for name, _, _ in _TOPICS}
        self._names = {topic_id: name for name, topic_id in self.topics.items()}
        #: Little goes wrong in some worlds, so that more is done and more can be looked at.
        self.tidy = self.rng.random() < 0.4
        #: How likely a writer waits for the disk.
        self.durable_writers = self.rng.choice(_DURABLE_WRITERS)
        self.clocks_jump = self.rng.random() < 0.2
        if self.clocks_jump:  # a commit may be dated as old when it is made
            self.oracle.tombstone_delay = -math.inf
        log = self.open()
        for name, partitions, settings in _TOPICS:
            log.commit([Unit((TopicEntry(self.topics[name], name, partitions, settings),))])
        self._incarnation = 0

    def _make_place(self) -> None:
        self.machine = self.files = SimulatedDisk(self.scheduler, Faults())
        self.files.watch_removal = self._check_removal

    def _steps(self, most: int) -> int:
        """What lasts so many steps in the largest of worlds, in this one."""
        return int(most * self.size.steps)

    def _set_faults(self, *, on: bool) -> None:
        self.files.faults = random_faults(self.rng) if on else Faults()

    def environment(self, *, jumping: bool = False) -> Environment:
        """Clock, ids and randomness of one process; the clocks of two differ, some jump."""
        rng, skew = random.Random(self.rng.getrandbits(64)), self.rng.uniform(-_SKEW, _SKEW)

        def now() -> float:
            jump = rng.choice(_JUMPS) if jumping else 0.0
            return max(self.scheduler.clock + skew + jump, 0.0)

        return Environment(
            now_ns=lambda: int(now() * 1e9),
            monotonic=lambda: self.scheduler.clock,
            sleep=lambda seconds: self.scheduler.pause(seconds, stay=0.0),
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
            rng=rng,
        )

    def open(self, *, durable: bool = True, writes: bool = False) -> WatchedLog:
        """A handle of its own, as another process has it; the clocks of writers may jump."""
        environment = self.environment(jumping=writes and self.clocks_jump)
        log = WatchedLog(self.files, self.identity, environment, durable=durable)
        log.watch = self._new_watch()
        return log

    def _new_watch(self) -> Watch:
        return Watch(self.oracle, 2 * _SKEW, clocks_jump=self.clocks_jump)

    def batch_of(self, records: list[Record]) -> SizedBatch:
        """What a writer stores of records."""
        return batch_of(records)

    def rest(self, log: CommitLog, lsn: int) -> None:
        """Wait a little for the commit after this one."""
        log.wait(lsn, 0.01)

    def name_of(self, topic_id: bytes) -> str:
        """The name of a topic."""
        return self._names[topic_id]

    def boot(self) -> None:
        """Everybody until all are done, some are killed or the machine crashes."""
        tasks = self._tasks()
        self.grace = self.rng.choice(self.graces)
        self._always_spared &= self.grace > 0
        self._set_faults(on=not self.tidy)
        sleepy = 0.0 if self.tidy else self.rng.choice(self.sleepiness)
        begin = self.scheduler.steps
        most = self.tidy_steps if self.tidy else self.crash_steps
        self.scheduler.crash_at = begin + self.rng.randrange(1, self._steps(most))
        for task in tasks:
            if self.rng.random() < (0.1 if self.tidy else 0.4):
                task.kill_at = begin + self.rng.randrange(1, self._steps(self.kill_steps))
            task.sleepy = sleepy / self.size.steps  # as often as in a large world
        self.scheduler.run(tasks)
        self.scheduler.crash_at = -1
        self._held.clear()
        self._set_faults(on=False)
        if self.scheduler.failures:
            raise self.scheduler.failures[0]
        if self.scheduler.crashed or self.rng.random() < 0.5:
            self.machine.crash()

    def _tasks(self) -> list[Task]:
        size = self.size
        maintainers = size.maintainers[-1] if self.tidy else self.rng.choice(size.maintainers)
        tasks = [Task(f"writer {n}", Writer(self, n).run) for n in range(size.writers)]
        tasks += [Task(f"reader {n}", partial(self._read, n)) for n in range(size.readers)]
        return tasks + [Task(f"maintainer {n}", Maintainer(self).run) for n in range(maintainers)]

    def _read(self, number: int) -> None:
        durable = number < max(self.size.readers - 1, 1) or not self.knows_os_durability
        self.scheduler.pause(stay=0.0)
        log = self.open(durable=durable)
        follower = Follower(self.oracle, log)
        for _ in range(self.rng.randrange(*self.size.looks)):
            try:
                began = self.scheduler.clock
                state = log.refresh()
                self._hold(number, log, began)
                if self.rng.random() < (0.02 if self.grace else 0.4):
                    self.scheduler.stall()  # what it knows may move meanwhile
                follower.follow(state, again=self.rng.random() < 0.3)
                self.rest(log, follower.lsn)
            except UnavailableError:
                continue
            except CorruptionError:
                # What is not on disk yet may be lost by a failed sync while it is read.
                if durable or not self.machine.failed:
                    raise

    def _hold(self, number: int, log: WatchedLog, began: float) -> None:
        if log.durable and (self.tidy or self.rng.random() < 0.5):
            with self.scheduler.unseen():
                try:
                    self._held[number] = (began, files_of(log.state))
                except CorruptionError:
                    self._held.pop(
                        number, None
                    )  # it was opened too long ago to be sure of its pages

    def _check_removal(self, path: str) -> None:
        for since, files in self._held.values():
            young = self.scheduler.clock - since < self.grace - self.look_age
            assert not (young and path in files), f"{path} was removed from under a reader"

    def audit(self) -> None:
        """Look at all checkpoints from outside."""
        with self.scheduler.unseen():
            check_checkpoints(self.files, self.identity, grace=self._always_spared)

    def next_incarnation(self) -> int:
        """An epoch above all that were given out before."""
        self._incarnation += 1
        return self._incarnation

    def finish(self) -> None:
        """Check what is left on a machine without faults."""
        log = self.open()
        follower = Follower(self.oracle, log)
        follower.follow(log.refresh())
        log.commit([Unit((ProducerEntry("last", 1, 0),))])
        log = self.open()
        follower = Follower(self.oracle, log)
        state = log.refresh()
        follower.follow(state)
        self.oracle.check_all(follower.seen, follower.starts, state.lsn)
        check_counts(state, follower.seen)
        self.audit()


def random_faults(rng: random.Random) -> Faults:
    """None in some boots, a few in others."""
    sync = rng.choice((0.0, 0.0, 0.05, 0.2))
    full = rng.choice((0.0, 0.0, 0.05))
    # Not all three in one boot: a full disk has no room to write again what a sync left out.
    both = bool(sync and full)
    return Faults(
        sync=sync,
        full=full,
        garbage=0.0 if both else rng.choice((0.0, 0.0, 0.003)),
        drop_pages=rng.random() < 0.5,
    )


@contextmanager
def small_limits(also: Iterable[Limit] = ()) -> Iterator[None]:
    """Everything is so small that little makes much happen."""
    with ExitStack() as patches:
        for module, name, value in (*LIMITS, *also):
            patches.enter_context(patch.object(module, name, value))
        yield


def run(seed: int, kind: type[World] = World) -> World:
    """A world after some boots, checked."""
    with small_limits(kind.limits):
        world = kind(seed)
        with patch.object(limits, "ORPHAN_AGE", world.orphan_age):
            for _ in range(world.rng.randrange(*world.size.boots)):
                world.boot()
            world.finish()
        return world


def simulate(seed: int, kind: type[World] = World) -> str:
    """Run one seed; the digest of its history, or the first thing that must not be."""
    return run(seed, kind).oracle.digest()
