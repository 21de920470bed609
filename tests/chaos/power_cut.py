"""Power cuts in the middle of writes: the file system goes down under producers and maintainers.

`python -m tests.chaos.power_cut --cuts 100` (root): an ext4 in a file is shut down without writing
its journal, everybody is killed, and it is mounted again as after a start of the machine. Then
every record that was acknowledged is there, in order, once, where its producer was told.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import kmq_spark as kmq
from kmq_storage.objects import local
from tests.chaos import storm_workers
from tests.chaos.kill_storm import Slot, Storm
from tests.chaos.storm_oracle import Oracle
from tests.support.loop_disk import LoopDisk, missing_loop_disk

_MEGABYTES = 512
#: At least so many records are acknowledged before a cut.
_ACKNOWLEDGED = 100
_SLOTS: tuple[Slot, ...] = (
    (storm_workers.produce, None, "fsync"),
    (storm_workers.produce, None, "fsync"),
    (storm_workers.consume, "readers", "fsync"),
    (storm_workers.maintain, None, "fsync"),
)


class Machine:
    """A machine whose disk and boot are its own; the file of its boot's id stands elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.files = LoopDisk(folder, megabytes=_MEGABYTES)
        self._boot_id = folder / "boot_id"
        self.oracle = Oracle()

    @contextmanager
    def running(self) -> Iterator[str]:
        """From a start of the machine to its end; the URL of its store."""
        self._boot_id.write_text(f"{uuid.uuid4()}\n")
        self.files.mount()
        try:
            with patch.object(local, "_BOOT_ID", self._boot_id):
                yield str(self.files.root / "store")
        except BaseException:
            self.files.unmount(lazy=True)
            raise
        gc.collect()  # what is mapped keeps the disk busy
        self.files.unmount()

    def run_until_cut(self, rng: random.Random) -> None:
        """Write, read and maintain for a while, and lose power in the middle of it."""
        with self.running() as url:
            slots = tuple((partial(_in_boot, self._boot_id, work), *rest) for work, *rest in _SLOTS)
            storm = Storm(url, rng, slots=slots, oracle=self.oracle)
            try:
                before = len(self.oracle.acked)
                while len(self.oracle.acked) < before + _ACKNOWLEDGED and not self.oracle.wrong:
                    storm.listen(0.05)
                storm.listen(rng.uniform(0.0, 0.5))
                self.files.cut_power()
            finally:
                # A machine without power says nothing. Here a sync that was under way may even
                # succeed: ext4 drops what it could not finish in silence once it is shut down.
                storm.oracle = Oracle()
                storm.end()

    def check(self) -> list[str]:
        """After a start: what is not as it was promised."""
        with self.running() as url:
            return self._checked(url)

    def _checked(self, url: str) -> list[str]:
        with kmq.open(url, maintenance=False) as store:
            return self.oracle.check(store)


def _in_boot(boot_id: Path, work: Callable[..., None], *arguments: Any) -> None:
    with patch.object(local, "_BOOT_ID", boot_id), suppress(OSError, kmq.KmqError):
        work(*arguments)


def run(folder: Path, cuts: int, seed: int) -> Oracle:
    """Cut the power so often, and check after each time; what was told and found wrong."""
    rng = random.Random(seed)
    machine = Machine(folder)
    with machine.running() as url:
        _make_topics(url)
    for _ in range(cuts):
        machine.run_until_cut(rng)
        if machine.check():
            break
    return machine.oracle


def _make_topics(url: str) -> None:
    with kmq.open(url, maintenance=False) as store:
        store.create_topic(storm_workers.TOPIC, partitions=3)
        store.create_topic(storm_workers.COMPACTED, partitions=1, cleanup="compact")


def main() -> int:
    """Cut the power as often as asked for; 1 when something was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    if reason := missing_loop_disk():
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="power-cut-") as folder:
        oracle = run(Path(folder), options.cuts, options.seed)
    print(f"seed {options.seed}: {len(oracle.acked)} acknowledged, {oracle.found} found")
    print(*oracle.wrong[:20], sep="\n")
    return 1 if oracle.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
