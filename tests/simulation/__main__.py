"""Run seeds: `python -m tests.simulation --seeds 1000`, or those named in KMQ_SIM_SEEDS."""

from __future__ import annotations

import argparse
import os
import sys
import traceback

from tests.simulation.world import simulate

#: After so many seeds a line says how far it is.
_TELL_EVERY = 500


def main() -> int:
    """Run the seeds, and print those that fail with what it takes to see them again."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    seeds = [int(seed) for seed in os.environ.get("KMQ_SIM_SEEDS", "").split(",") if seed]
    failed: list[int] = []
    for count, seed in enumerate(seeds or range(asked.first, asked.first + asked.seeds)):
        if count and count % _TELL_EVERY == 0:
            print(f"{count} seeds ran, {len(failed)} failed", flush=True)
        try:
            simulate(seed)
        except Exception:
            failed.append(seed)
            print(f"seed {seed} failed, again: KMQ_SIM_SEEDS={seed} python -m tests.simulation")
            traceback.print_exc()
    print(f"{len(failed)} of {len(seeds) or asked.seeds} seeds failed: {failed[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
