"""Many seeds, one after the other: those that were asked for, and the first that fails."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tests.simulation.world import World, run

#: The seeds named in KMQ_SIM_SEEDS.
ASKED = [int(seed) for seed in os.environ.get("KMQ_SIM_SEEDS", "").split(",") if seed]


def worlds_of(seeds: Iterable[int], kind: type[World], again: str) -> Iterator[World]:
    """The world of each seed, checked; a failure says by which command it comes again."""
    for seed in seeds:
        try:
            world = run(seed, kind)
        except Exception as error:
            error.add_note(f"again: KMQ_SIM_SEEDS={seed} {again}")
            raise
        yield world


def first_failure(seeds: Iterable[int], kind: type[World] = World) -> int | None:
    """The first seed that fails, if one does."""
    for seed in seeds:
        try:
            run(seed, kind)
        except Exception:
            return seed
    return None
