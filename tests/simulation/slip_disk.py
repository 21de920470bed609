"""A simulated disk with slips: pages of words that have names, are deleted, and get torn."""

from __future__ import annotations

import random

from kmq_storage import paths
from tests.simulation.disk import SimulatedDisk, SimulatedWords
from tests.simulation.inode import Inode

#: How often a process stalls or dies there.
_AT_A_NOTE, _AT_A_MARK = 0.06, 0.3


class SlipDisk(SimulatedDisk):
    """Nobody syncs a slip, or its name; who has it open keeps it, whatever becomes of the name."""

    #: Whether a failed sync may have dropped what was not on disk, since the machine started.
    dropped_pages = False

    def attempt(self, chance: float, code: int, inode: Inode | None = None) -> None:
        before = self.failed
        try:
            super().attempt(chance, code, inode)
        finally:
            fell = self.failed > before and inode is not None
            self.dropped_pages |= fell and self.faults.drop_pages

    def crash(self) -> None:
        super().crash()
        self.dropped_pages = False
        for path in [path for path in self._words if paths.is_slip(path)]:
            if path not in self.files:
                del self._words[path]

    def open_words(self, path: str, count: int) -> SimulatedWords:
        if not paths.is_slip(path):
            return super().open_words(path, count)
        self.scheduler.pause()
        if path not in self.files:
            self._new(path, Inode(bytes(8 * count), stable=True))
        return self._words.setdefault(path, SimulatedSlip(self.scheduler, count))

    def _unlink(self, path: str) -> bool:
        found = super()._unlink(path)
        if paths.is_slip(path):
            self._words.pop(path, None)
        return found


class SimulatedSlip(SimulatedWords):
    """A slip; a crash leaves each word as it was at some time.

    Before a store, and before the look for a mark, processes stand still for long, or die, so
    often that others take over just then.
    """

    def load(self, index: int) -> int:
        if index == 0:
            self._have_an_accident(_AT_A_NOTE)
        return super().load(index)

    def store(self, index: int, value: int) -> None:
        if self._words[index]:  # not while it is made
            self._have_an_accident(_AT_A_NOTE if index else _AT_A_MARK)
        super().store(index, value)

    def _have_an_accident(self, likely: float) -> None:
        scheduler = self._scheduler
        if scheduler.running is None or scheduler.from_outside:
            return
        chance = scheduler.rng.random()
        if chance < likely / 6:
            scheduler.kill()
        elif chance < likely:
            scheduler.stall()

    def crash(self, rng: random.Random) -> None:
        states = self._snapshots
        self._words = [rng.choice(states)[index] for index in range(len(self._words))]
        self._snapshots = [[0] * len(self._words), list(self._words)]

    def scribble(self, rng: random.Random) -> None:
        """Damage is for other tests: what is damaged there comes again."""
