"""Many seeded runs of a simulated machine.

Finds what no single process can: an interleaving of two writers, or a crash between two calls to
the disk, after which an acknowledged commit is gone, doubled, torn, or seen and taken back.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.world import World, simulate

_BLOCK = 25
_ASKED = [int(seed) for seed in os.environ.get("KMQ_SIM_SEEDS", "").split(",") if seed]
_BLOCKS = [_ASKED] if _ASKED else [list(range(n, n + _BLOCK)) for n in range(0, 200, _BLOCK)]


@pytest.mark.parametrize("seeds", _BLOCKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_acknowledged_is_lost_or_doubled_and_readers_see_a_prefix(seeds: list[int]):
    for seed in seeds:
        try:
            simulate(seed)
        except Exception as error:
            error.add_note(f"again: KMQ_SIM_SEEDS={seed} python -m tests.simulation")
            raise


def test_a_seed_gives_the_same_history_every_time():
    assert [simulate(seed) for seed in range(5)] == [simulate(seed) for seed in range(5)]
    assert simulate(0) != simulate(1)


def test_the_runs_are_not_empty():
    worlds = [World(seed) for seed in range(20)]
    for world in worlds:
        for _ in range(3):
            world.boot()
        world.finish()
    assert sum(len(world.oracle.acknowledged) for world in worlds) > 1_000
    assert sum(world.disk.boots for world in worlds) > 30
    assert sum(world.disk.failed for world in worlds) > 30
