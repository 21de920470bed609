"""A storm of SIGKILLs on producers, group members and maintainers of one store.

`python -m tests.chaos.kill_storm --kills 1000` runs rounds of kills, each on a new store. A round
ends with a check: every acknowledged record is there, in order, once, at the place its producer
was told; groups stand where they were told, never beyond the end; nothing is damaged.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import kmq_spark as kmq
from tests.chaos import storm_workers
from tests.chaos.storm_oracle import Oracle

#: Each worker that is kept alive: what it does, its group if it is a member, its durability.
Slot = tuple[Callable[..., None], str | None, str]
SLOTS: tuple[Slot, ...] = (
    (storm_workers.produce, None, "fsync"),
    (storm_workers.produce, None, "fsync"),
    (storm_workers.produce, None, "os"),
    (storm_workers.consume, "readers-fsync", "fsync"),
    (storm_workers.consume, "readers-os", "os"),
    (storm_workers.maintain, None, "fsync"),
    (storm_workers.maintain, None, "os"),
)
KILLS_PER_ROUND = 50
_LIFE = 0.25
#: Before a kill there were at least so many for each: on a slow machine workers live longer.
_ACKNOWLEDGED_PER_KILL = 3


@dataclass
class Worker:
    """One living process, and the pipe on which it reports."""

    name: str
    group: str | None
    process: Any
    reports: Connection


class Storm:
    """The processes of one round."""

    def __init__(
        self,
        url: str,
        rng: random.Random,
        *,
        slots: tuple[Slot, ...] = SLOTS,
        oracle: Oracle | None = None,
    ) -> None:
        self._url = url
        self._rng = rng
        self._slots = slots
        # A server that has imported everything forks a worker in milliseconds.
        self._context = multiprocessing.get_context("forkserver")
        maintenance = "kmq_storage.maintenance"
        self._context.set_forkserver_preload(
            ["tests.chaos.storm_workers", f"{maintenance}.maintain", f"{maintenance}.collect"]
        )
        self.kills = 0
        self.oracle = oracle or Oracle()
        self._workers = [self._start(slot) for slot in range(len(slots))]

    def _start(self, slot: int) -> Worker:
        target, group, durability = self._slots[slot]
        name = f"w{self._rng.getrandbits(48):x}"
        reports, theirs = self._context.Pipe(duplex=False)
        arguments = (self._url, group or name, durability, self._rng.getrandbits(32), theirs)
        process = self._context.Process(target=target, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return Worker(name, group, process, reports)

    def rage(self, kills: int) -> None:
        """Kill this many workers at random moments of their lives; start others in their place."""
        while self.kills < kills:
            self.listen(self._rng.random() * _LIFE)
            while self._is_behind():
                self.listen(_LIFE)
            slot = self._rng.randrange(len(self._slots))
            self._kill(self._workers[slot])
            self._workers[slot] = self._start(slot)

    def _is_behind(self) -> bool:
        acknowledged = len(self.oracle.acked)
        return acknowledged < _ACKNOWLEDGED_PER_KILL * self.kills and not self.oracle.wrong

    def end(self) -> None:
        """Kill what still lives."""
        for worker in self._workers:
            self._kill(worker)

    def listen(self, seconds: float) -> None:
        """Take reports for a while."""
        deadline = time.monotonic() + seconds
        by_pipe = {worker.reports: worker for worker in self._workers}
        while (left := deadline - time.monotonic()) > 0 and by_pipe:
            for pipe in wait(list(by_pipe), left):
                worker = by_pipe[pipe]  # type: ignore[index]
                if not self._hear(worker):
                    self.oracle.wrong.append(f"{worker.name} ended by itself")
                    del by_pipe[worker.reports]

    def _hear(self, worker: Worker) -> bool:
        try:
            self.oracle.hear(worker.name, worker.group, worker.reports.recv_bytes())
        except (EOFError, OSError):
            return False
        return True

    def _kill(self, worker: Worker) -> None:
        worker.process.kill()
        worker.process.join()
        self.kills += 1
        while self._hear(worker):
            pass  # what it said before it died counts
        worker.reports.close()


def run_round(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill `kills` workers on a new store in this folder; the counts, and what was found wrong."""
    url = str(folder)
    with kmq.open(url) as store:
        store.create_topic(storm_workers.TOPIC, partitions=3)
        store.create_topic(storm_workers.COMPACTED, partitions=1, cleanup="compact")
    storm = Storm(url, random.Random(seed))
    try:
        storm.rage(kills)
    finally:
        storm.end()
    with kmq.open(url) as store:
        wrong = storm.oracle.check(store)
        commits = store.log.refresh().lsn
    oracle = storm.oracle
    return {
        "kills": storm.kills, "acknowledged": len(oracle.acked), "found": oracle.found,
        "commits": commits, "staged": len(list((folder / "staged").glob("*"))),
        "segments": len(list((folder / "segments").rglob("*.arrow"))),
        "checkpoints": len(list((folder / "checkpoints").glob("*"))),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "wrong": wrong,
    }  # fmt: skip


def main() -> int:
    """Run rounds until there were enough kills; 1 when something was found wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    totals: dict[str, Any] = {"seed": options.seed, "kills": 0, "acknowledged": 0, "found": 0}
    started, wrong = time.monotonic(), []
    while totals["kills"] < options.kills and not wrong:
        folder = Path(tempfile.mkdtemp(prefix="kill-storm-"))
        kills = min(KILLS_PER_ROUND, options.kills - totals["kills"])
        counts = run_round(folder, kills, options.seed + totals["kills"])
        wrong = counts.pop("wrong")
        for name, count in counts.items():
            totals[name] = totals.get(name, 0) + count
        print(json.dumps(totals), flush=True)
        if wrong:
            print(f"found wrong in {folder}:", *wrong[:20], sep="\n  ")
        else:
            shutil.rmtree(folder)
    print(f"{'WRONG' if wrong else 'ok'} after {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
