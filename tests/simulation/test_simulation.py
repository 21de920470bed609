"""Many seeded runs of a simulated machine, and of hosts that share a simulated bucket.

Finds what no single process can: an interleaving of two writers, or a crash between two calls to
the disk, after which an acknowledged commit is gone, doubled, torn, or seen and taken back, a
sealed or compacted record is another one, or a file that somebody needs is deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from tests.simulation.bucket_world import BucketWorld
from tests.simulation.group_world import GroupBucketWorld
from tests.simulation.holding_ahead import AheadWorld
from tests.simulation.seeds import ASKED, worlds_of
from tests.simulation.world import World, simulate

_SEEDS = tuple(ASKED or range(50))

#: What the seeds do at least.
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


@cache
def _done(kind: type[World], again: str) -> Counter[str]:
    """What is done with the seeds, each of which is checked while it runs."""
    done: Counter[str] = Counter()
    for world in worlds_of(_SEEDS, kind, again):
        done += world.done
        done.update(acknowledged=world.oracle.acknowledged)
        done.update(boots=world.machine.boots, failed=world.machine.failed)
    return done


def _of_disk() -> Counter[str]:
    return _done(World, "python -m tests.simulation")


def _of_bucket() -> Counter[str]:
    return _done(BucketWorld, "python -m tests.simulation --bucket")


def test_nothing_acknowledged_is_lost_or_doubled_and_readers_see_a_prefix():
    assert _of_disk()


def test_the_same_holds_for_hosts_that_share_a_bucket():
    assert _of_bucket()


def test_a_seed_gives_the_same_history_every_time():
    assert [simulate(seed) for seed in range(5)] == [simulate(seed) for seed in range(5)]
    assert simulate(0) != simulate(1)
    for kind in (BucketWorld, AheadWorld, GroupBucketWorld):
        assert [simulate(seed, kind) for seed in range(3)] == [
            simulate(seed, kind) for seed in range(3)
        ]


@pytest.mark.skipif(bool(ASKED), reason="some seeds do little")
@pytest.mark.parametrize(
    ("done_by", "also"), [(_of_disk, {}), (_of_bucket, {"repaired": 10})], ids=["disk", "bucket"]
)
def test_the_runs_are_not_empty(done_by: Callable[[], Counter[str]], also: dict[str, int]):
    done = done_by()
    for what, least in (_AT_LEAST | also).items():
        assert done[what] > least, what
