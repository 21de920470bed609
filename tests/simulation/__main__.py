"""Run seeds: `python -m tests.simulation --seeds 1000`, or those named in KMQ_SIM_SEEDS."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice, product
from multiprocessing import SimpleQueue

from tests.simulation.bucket_world import BucketWorld
from tests.simulation.choosing import ChoosyWorld
from tests.simulation.group_world import GroupBucketWorld, GroupWorld
from tests.simulation.holding_ahead import AheadWorld
from tests.simulation.ordering import OrderlyWorld
from tests.simulation.queue_world import QueueBucketWorld, QueueWorld
from tests.simulation.rebinding import RebindingWorld
from tests.simulation.seeds import ASKED
from tests.simulation.world import World, simulate

#: After so many runs a line says how far it is.
_TELL_EVERY = 1_000
#: How many seeds a process takes at a time.
_CHUNK = 20
#: Worlds with more than the log, each seed in all of them.
_OTHERS: list[type[World]] = [
    QueueWorld,
    QueueBucketWorld,
    ChoosyWorld,
    RebindingWorld,
    OrderlyWorld,
    AheadWorld,
    GroupWorld,
    GroupBucketWorld,
]
_SWITCHES: dict[type[World], str] = {World: "", BucketWorld: " --bucket"}
_Run = tuple[int, type[World]]


def main() -> int:
    """Run the seeds, and print those that fail with what it takes to see them again."""
    asked = _arguments()
    kinds: list[type[World]] = [World, BucketWorld] if asked.both else [World]
    kinds = [BucketWorld] if asked.bucket else kinds
    kinds = _OTHERS if asked.queues else kinds
    runs = list(product(ASKED or range(asked.first, asked.first + asked.seeds), kinds))
    failed: list[int] = []
    outcomes = zip(runs, _outcomes(runs, asked.jobs), strict=True)
    for count, ((seed, kind), failure) in enumerate(outcomes, 1):
        if failure:
            failed.append(seed)
            where = _SWITCHES.get(kind, " --queues")
            print(f"again: KMQ_SIM_SEEDS={seed} python -m tests.simulation{where}\n{failure}")
        if failure or count % _TELL_EVERY == 0:
            print(f"{count} of {len(runs)} runs ended, {len(failed)} failed", flush=True)
    print(f"{len(failed)} of {len(runs)} runs failed: {failed[:20]}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--bucket", action="store_true", help="in a bucket, not on a disk")
    parser.add_argument("--both", action="store_true", help="each seed on a disk and in a bucket")
    parser.add_argument("--queues", action="store_true", help="queues, transactions and groups")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    return parser.parse_args()


def _outcomes(runs: Iterable[_Run], jobs: int) -> Iterator[str]:
    """What went wrong in each run, in their order."""
    cores: SimpleQueue[int] = SimpleQueue()
    for core in islice(cycle(sorted(os.sched_getaffinity(0))), jobs):
        cores.put(core)
    with ProcessPoolExecutor(jobs, initializer=_stay_on_a_core, initargs=(cores,)) as pool:
        yield from pool.map(_failure, runs, chunksize=_CHUNK)


def _stay_on_a_core(cores: SimpleQueue[int]) -> None:
    """A run has one thread at work: handing over to one on another core takes a fourth more."""
    os.sched_setaffinity(0, {cores.get()})


def _failure(run: _Run) -> str:
    """The traceback of a run; empty when all that must hold holds."""
    try:
        simulate(*run)
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    sys.exit(main())
