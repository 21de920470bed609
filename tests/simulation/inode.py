"""A file of the simulated disk: what is in the page cache, and what of it is on the disk."""

from __future__ import annotations

import random

SECTOR = 512


class Inode:
    """The bytes of a file in the page cache, on the disk, and which sectors differ on purpose."""

    def __init__(self, data: bytes | bytearray, *, stable: bool, modified: int = 0) -> None:
        self.modified = modified
        self.data = bytearray(data)
        self.stable = bytearray(data) if stable else bytearray(len(data))
        self.dirty: set[int] = set() if stable else set(range(-(-len(data) // SECTOR)))

    def write(self, position: int, data: bytes) -> None:
        assert position + len(data) <= len(self.data), "a log file never changes its size"
        self.data[position : position + len(data)] = data
        self.dirty |= set(range(position // SECTOR, -(-(position + len(data)) // SECTOR)))

    def sync(self) -> None:
        self._keep(self.dirty)
        self.dirty.clear()

    def fail(self, rng: random.Random, *, drop_pages: bool) -> None:
        """A failed sync: some sectors arrived, none is dirty any more, the next one succeeds."""
        self._keep({sector for sector in sorted(self.dirty) if rng.random() < 0.5})
        if drop_pages and rng.random() < 0.4:
            for sector in sorted(self.dirty):
                if rng.random() < 0.3:
                    span = slice(sector * SECTOR, (sector + 1) * SECTOR)
                    self.data[span] = self.stable[span]
        self.dirty.clear()

    def crash(self, rng: random.Random) -> Inode:
        chance = rng.choice((0.0, 0.5, 0.9, 1.0))
        self._keep({sector for sector in sorted(self.dirty) if rng.random() < chance})
        return Inode(self.stable, stable=True, modified=self.modified)

    def _keep(self, sectors: set[int]) -> None:
        for sector in sectors:
            span = slice(sector * SECTOR, (sector + 1) * SECTOR)
            self.stable[span] = self.data[span]
