"""A maintainer: seals, rewrites, trims, checkpoints and collects, a few things in any order."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import TYPE_CHECKING

from kmq_storage.errors import CorruptionError, UnavailableError
from kmq_storage.integrity.repair import repair
from kmq_storage.log.moving import planning
from kmq_storage.log.state.store_state import StoreState
from kmq_storage.maintenance.checkpointing import checkpoint
from kmq_storage.maintenance.collect import collect
from kmq_storage.maintenance.compact import compact_keys, compact_topic, merge, plan_merges
from kmq_storage.maintenance.maintain import maintain
from kmq_storage.maintenance.reports import CompactReport, SealReport, TrimReport
from kmq_storage.maintenance.seal import plan_seal, seal
from kmq_storage.maintenance.trim import plan_trim, retain, trim

if TYPE_CHECKING:
    from tests.simulation.world import WatchedLog, World


class Maintainer:
    """One process that looks after the store, beside others that do the same."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        self._done = world.done

    def run(self) -> None:
        """Do some things, then end."""
        log = self._world.open(durable=self._rng.random() < 0.8)
        actions = (
            *(self._seal,) * 4,
            *(self._checkpoint,) * 3,
            *(self._collect,) * 4,
            *(self._merge,) * 2,
            self._compact,
            self._compact_topic,
            self._trim,
            self._retain,
            self._maintain,
            *(self._repair,) * (3 if self._world.repairs else 0),
        )
        for _ in range(self._rng.randrange(*self._world.size.actions)):
            action = self._rng.choice(actions)
            try:
                action(log)
            except UnavailableError:
                self._done["unavailable"] += 1
            except CorruptionError:
                # What is not on disk yet may be lost by a failed sync while it is sealed.
                if log.durable or not self._world.machine.failed:
                    raise

    def _seal(self, log: WatchedLog) -> None:
        older = log.environment.now_us() - 10_000_000 if self._rng.random() < 0.3 else None
        size = self._rng.choice((1, 600, 1_000_000))

        def sealed(state: StoreState) -> SealReport:
            return seal(log, plan_seal(state, segment_bytes=size, older_than=older))

        report = planning(log, sealed)
        self._done.update({"sealed": report.segments, "conflicts": report.conflicts})

    def _checkpoint(self, log: WatchedLog) -> None:
        self._done.update({"pages": checkpoint(log).pages, "checkpoints": 1})
        self._world.audit()

    def _collect(self, log: WatchedLog) -> None:
        report = collect(log, grace=self._world.grace)
        self._done["collected"] += report.files

    def _merge(self, log: WatchedLog) -> None:
        name, size = self._rng.choice(("orders", "audit")), self._rng.choice((4_000, 1_000_000))

        def merged(state: StoreState) -> CompactReport:
            return merge(log, plan_merges(state.topic(name), state.lsn, segment_bytes=size, now=0))

        report = planning(log, merged)
        self._done.update({"merged": report.before, "conflicts": report.conflicts})

    def _compact(self, log: WatchedLog) -> None:
        size = self._rng.choice((1, 600, 1_000_000))

        def compacted(state: StoreState) -> CompactReport:
            return compact_keys(log, state.topic("profiles"), state.lsn, segment_bytes=size)

        report = planning(log, compacted)
        self._done.update({"superseded": report.dropped, "conflicts": report.conflicts})

    def _compact_topic(self, log: WatchedLog) -> None:
        self._done["superseded"] += compact_topic(log, "profiles").dropped

    def _trim(self, log: WatchedLog) -> None:
        name, more = self._rng.choice(("orders", "orders", "profiles")), self._rng.randrange(6)
        number = self._rng.randrange(2)

        def trimmed(state: StoreState) -> TrimReport:
            lsn, part = state.lsn, state.topic(name).partition(number)
            start = min(part.end, part.start + more)
            return trim(log, plan_trim(state.topic(name), {number: start}), lsn)

        with log.watch.trimming_by_hand():
            self._done["trimmed"] += planning(log, trimmed).rows

    def _retain(self, log: WatchedLog) -> None:
        report = planning(log, lambda state: retain(log, state, apart=nullcontext))
        self._done["retired"] += report.rows

    def _repair(self, log: WatchedLog) -> None:
        """Nothing is damaged here: who looks beside all the others must not think so."""
        report = repair(log)
        assert report.damage == [], report
        self._done["repaired"] += 1

    def _maintain(self, log: WatchedLog) -> None:
        report = maintain(log, grace=self._world.grace)
        self._done.update({"maintained": 1, "collected": report.collected.files})
