"""Many seeded runs of a simulated machine, and of hosts that share a simulated bucket.

Finds what no single process can: an interleaving of two writers, or a crash between two calls to
the disk, after which an acknowledged commit is gone, doubled, torn, or seen and taken back, a
sealed or compacted record is another one, or a file that somebody needs is deleted.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.bucket_world import BucketWorld
from tests.simulation.seeds import ASKED, worlds_of
from tests.simulation.world import World, run, simulate

_BLOCK = 50
_BLOCKS = [ASKED] if ASKED else [list(range(n, n + _BLOCK)) for n in range(0, 200, _BLOCK)]

#: What 60 seeds do at least.
_AT_LEAST = {
    "acknowledged": 800,
    "boots": 15,
    "failed": 30,
    "sealed": 30,
    "merged": 5,
    "superseded": 20,
    "pages": 50,
    "collected": 100,
    "trimmed": 10,
    "conflicts": 2,
    "maintained": 5,
}


@pytest.mark.parametrize("seeds", _BLOCKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_acknowledged_is_lost_or_doubled_and_readers_see_a_prefix(seeds: list[int]):
    for _ in worlds_of(seeds, World, "python -m tests.simulation"):
        pass  # each is checked while it runs


@pytest.mark.parametrize("seeds", _BLOCKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_the_same_holds_for_hosts_that_share_a_bucket(seeds: list[int]):
    for _ in worlds_of(seeds, BucketWorld, "python -m tests.simulation --bucket"):
        pass


def test_a_seed_gives_the_same_history_every_time():
    assert [simulate(seed) for seed in range(5)] == [simulate(seed) for seed in range(5)]
    assert simulate(0) != simulate(1)
    in_buckets = [simulate(seed, BucketWorld) for seed in range(3)]
    assert in_buckets == [simulate(seed, BucketWorld) for seed in range(3)]


@pytest.mark.parametrize("kind", [World, BucketWorld])
def test_the_runs_are_not_empty(kind: type[World]):
    done: Counter[str] = Counter()
    for seed in range(60):
        world = run(seed, kind)
        done += world.done
        done.update(acknowledged=world.oracle.acknowledged)
        done.update(boots=world.machine.boots, failed=world.machine.failed)
    also = {"repaired": 10} if kind is BucketWorld else {}
    for what, least in (_AT_LEAST | also).items():
        assert done[what] > least, what
