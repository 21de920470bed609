"""The same histories in a bucket: every process on a host of its own, and no disk but that."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise
from typing import Any

from kmq_storage.errors import UnavailableError
from kmq_storage.log.bucket.bucket_log import BucketLog
from kmq_storage.log.bucket.collected import collected_lsn
from kmq_storage.log.bucket.commit_objects import CommitObjects, NewCommit
from kmq_storage.log.checkpoints.checkpoint import checkpoints, has_pages, read_checkpoint
from kmq_storage.log.commit_log import CommitLog
from tests.simulation.audit import described
from tests.simulation.bucket import STALE, BucketFaults, SimulatedBucket, SimulatedFiles
from tests.simulation.scheduler import Scheduler
from tests.simulation.watch import Watch
from tests.simulation.world import World

_SLEEPS_BEFORE_A_COMMIT = 0.05


class WatchedBucketLog(BucketLog):
    """A commit log that tells the oracle of each commit before it is created."""

    watch: Watch
    scheduler: Scheduler

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        create = self._next.create

        def tell_and_create(commit: NewCommit) -> bool:
            if self.known_state.lsn <= commit.after.lsn:  # else another thread saw it taken
                self.watch.tell(self.known_state, commit.framed.entries)
                self.watch.tell_next(commit.after, commit.stamp, commit.framed.entries)
            if self.scheduler.running and self.scheduler.rng.random() < _SLEEPS_BEFORE_A_COMMIT:
                self.scheduler.stall()  # meanwhile the name it is about to create may be collected
            return create(commit)

        self._next.create = tell_and_create  # type: ignore[method-assign]


class BucketWorld(World):
    """Hosts that share a bucket."""

    crash_steps, tidy_steps, kill_steps = 6_000, 12_000, 3_000
    stalled_steps = 2_500
    #: Two looks at listings that are stale may find no newer checkpoint.
    graces, look_age = (30.0, 60.0), 2 * (World.look_age + STALE)
    sleepiness = (0.0, 0.01, 0.03)
    knows_os_durability = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.repairs = seed % 4 == 3

    def _make_place(self) -> None:
        self.machine = SimulatedBucket(self.scheduler, BucketFaults())
        self.machine.watch_removal = self._check_removal
        self.files = self._files()

    def _files(self) -> SimulatedFiles:
        return SimulatedFiles(self.machine, environment=self.environment(), races=())

    def _set_faults(self, *, on: bool) -> None:
        self.machine.faults = random_bucket_faults(self.rng) if on else BucketFaults()

    def open(self, *, durable: bool = True, writes: bool = False) -> WatchedBucketLog:
        """A handle of its own, as another host has it."""
        environment = self.environment(jumping=writes and self.clocks_jump)
        files = SimulatedFiles(self.machine, environment=environment)
        while True:
            with suppress(UnavailableError):
                log = WatchedBucketLog(files, self.identity, environment)
                log.watch, log.scheduler = self._new_watch(), self.scheduler
                return log

    def rest(self, log: CommitLog, lsn: int) -> None:
        """Wait a little; the log's own way is for threads."""
        log.environment.sleep(0.5)

    def audit(self) -> None:
        """Each state of a checkpoint is that of the one before it and the commits since."""
        with self.scheduler.unseen():
            _check_checkpoints(self._files(), self.identity.seed)


def _check_checkpoints(files: SimulatedFiles, seed: int) -> None:
    objects, first = CommitObjects(files, seed), collected_lsn(files) + 1
    found = [read_checkpoint(files, *root) for root in sorted(checkpoints(files))]
    whole = [each for each in found[:-1] if has_pages(files, each.refs)] + found[-1:]
    for before, after in pairwise(whole):
        if first > before.cursor.lsn + 1:
            continue
        state, cursor = before.state(files, indexed=True), before.cursor
        for lsn in range(cursor.lsn + 1, after.cursor.lsn + 1):
            commit = objects.fetch(lsn)
            assert commit is not None, f"commit {lsn} is there up to a checkpoint"
            assert commit.header.previous == cursor.chain, f"commit {lsn} follows {cursor.lsn}"
            state.apply(lsn, commit.header.time, commit.entries(), file=lsn)
            cursor = commit.end
        there = after.state(files, indexed=True)
        assert described(state) == described(there), "a checkpoint says the same"
        assert (cursor.chain, cursor.time) == (after.cursor.chain, after.cursor.time)


def random_bucket_faults(rng: random.Random) -> BucketFaults:
    """None in some boots, a few in others."""
    return BucketFaults(
        doubt=rng.choice((0.0, 0.1, 0.3)),
        error=rng.choice((0.0, 0.0, 0.02)),
        stale=rng.choice((0.0, 0.0, 0.2)),
    )
