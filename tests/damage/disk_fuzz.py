"""Stores on a disk, of which files are damaged, cut or deleted at random, and that are repaired.

Is an offset ever given to two records, or does one vanish that nobody is told of?

python -m tests.damage.disk_fuzz --seeds 1000
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import kmq_spark as kmq
from kmq_storage.format.entries import RecordsEntry
from kmq_storage.objects.files import Files
from kmq_storage.objects.local import LocalDisk
from tests.damage.bucket_fuzz import Fuzz, main
from tests.support.damage import flip
from tests.support.engine import Sent, send_rows
from tests.support.storage import open_log

_KINDS = ("log", "log", "log", "segments", "segments", "pages", "checkpoints", "staged")


class DiskFuzz(Fuzz):
    """One store in a folder; the hint page stays, which tells what was acknowledged."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._folder = TemporaryDirectory(prefix="kmq-fuzz-")
        self._log_bytes = self.rng.choice((4096, 64 * 1024))

    def run(self, rounds: int = 3) -> None:
        """Work, damage and repair in turns."""
        with self._folder:
            super().run(rounds)

    def _files(self) -> Files:
        return LocalDisk(Path(self._folder.name))

    @contextmanager
    def _opened(self) -> Iterator[kmq.Store]:
        disk = LocalDisk(Path(self._folder.name))
        log = open_log(disk, file_bytes=self._log_bytes)
        with kmq.Store(log, maintenance=False) as store:
            yield store

    def _send(self, store: kmq.Store) -> None:
        if self.rng.random() < 0.7:
            super()._send(store)
            return
        partition, values = self._drawn()
        rows = [Sent(None, value) for value in values]
        sent = send_rows(store.log, self.topic, rows, partition=partition, staged=True)
        (entry,) = (entry for entry in sent.entries if isinstance(entry, RecordsEntry))
        for number, value in enumerate(values):
            self._give(partition, entry.base_offset + number, value)
        self.log.append(f"{len(values)} staged records to {partition} from {entry.base_offset}")

    def _collect(self, store: kmq.Store) -> None:
        store.collect(grace=0)
        self.log.append("collect")

    def _harm(self) -> None:
        if self.rng.random() < 0.15:
            self._lose("checkpoints")
        for _ in range(self.rng.choice((1, 2, 3, 4, 8))):
            files = self._below(self.rng.choice(_KINDS))
            if files:
                self._harm_file(self.rng.choice(files))

    def _harm_file(self, file: Path) -> None:
        body, how = file.read_bytes(), self.rng.random()
        used = len(body.rstrip(b"\0"))
        if how < 0.5 and used:
            at = self.rng.randrange(used)
            flip(file, at, 1 << self.rng.randrange(8))
            self.log.append(f"flip {file} at {at}")
            return
        file.unlink()
        if how < 0.7:
            left = self.rng.randrange(len(body) + 1)
            file.write_bytes(body[:left])
            self.log.append(f"cut {file} to {left}")
        else:
            self.log.append(f"delete {file}")

    def _lose(self, folder: str) -> None:
        for file in self._below(folder):
            file.unlink()
        self.log.append(f"delete {folder}")

    def _below(self, folder: str) -> list[Path]:
        found = sorted((Path(self._folder.name) / folder).rglob("*"))
        return [file for file in found if file.is_file() and file.name != "hint"]


if __name__ == "__main__":
    sys.exit(main("disk_fuzz", DiskFuzz))
