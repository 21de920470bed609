"""Run seeds: `python -m tests.simulation --seeds 1000`, or those named in KMQ_SIM_SEEDS."""

from __future__ import annotations

import argparse
import os
import sys
import traceback

from tests.simulation.bucket_world import BucketWorld
from tests.simulation.world import World, simulate

#: After so many seeds a line says how far it is.
_TELL_EVERY = 500


def main() -> int:
    """Run the seeds, and print those that fail with what it takes to see them again."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--bucket", action="store_true", help="in a bucket, not on a disk")
    parser.add_argument("--both", action="store_true", help="each seed on a disk and in a bucket")
    asked = parser.parse_args()
    seeds = [int(seed) for seed in os.environ.get("KMQ_SIM_SEEDS", "").split(",") if seed]
    kinds: list[type[World]] = [World, BucketWorld] if asked.both else [World]
    kinds = [BucketWorld] if asked.bucket else kinds
    failed: list[int] = []
    for count, seed in enumerate(seeds or range(asked.first, asked.first + asked.seeds)):
        if count and count % _TELL_EVERY == 0:
            print(f"{count} seeds ran, {len(failed)} failed", flush=True)
        for kind in kinds:
            try:
                simulate(seed, kind)
            except Exception:
                failed.append(seed)
                where = " --bucket" if kind is BucketWorld else ""
                print(f"again: KMQ_SIM_SEEDS={seed} python -m tests.simulation{where}")
                traceback.print_exc()
    print(f"{len(failed)} of {len(seeds) or asked.seeds} seeds failed: {failed[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
