"""Members that share a group on a machine or in a bucket that fails, and mistakes planted there.

Finds: an interleaving, a stall, a crash or a lost answer after which two members read one
partition, one commits what it lost, a commit that was acknowledged is taken back, nobody read what
the group went past, a partition stays with who is dead, or a consumer leaves out a record.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.group_mutants import GROUP_BUCKET_MUTANTS, GROUP_MUTANTS
from tests.simulation.group_world import GroupBucketWorld, GroupWorld
from tests.simulation.member_mutants import MEMBER_MUTANTS
from tests.simulation.mutants import Mutant
from tests.simulation.seeds import ASKED, shows, worlds_of
from tests.simulation.world import World

_MUTANT_SEEDS = 300
#: What the seeds do at least.
_AT_LEAST = {"joined": 100, "released": 10, "fenced": 5, "read": 500, "lost": 10, "checkpoints": 15}


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [(GroupWorld, range(80, 140)), (GroupBucketWorld, range(700_000, 700_040))],
    ids=["disk", "bucket"],
)
def test_no_partition_has_two_readers_and_no_commit_is_taken_back(kind: type[World], seeds: range):
    done: Counter[str] = Counter()
    for world in worlds_of(ASKED or seeds, kind, "pytest tests/simulation/test_groups.py"):
        done += world.done
    for what, least in ({} if ASKED else _AT_LEAST).items():
        assert done[what] > least, what


@pytest.mark.parametrize(
    ("kind", "mutant"),
    [
        *((GroupWorld, mutant) for mutant in (*GROUP_MUTANTS, *MEMBER_MUTANTS)),
        *((GroupBucketWorld, mutant) for mutant in GROUP_BUCKET_MUTANTS),
    ],
    ids=lambda each: each.__name__,
)
def test_a_mistake_that_is_planted_in_groups_is_found(
    kind: type[World], mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    assert shows(mutant.__name__, _MUTANT_SEEDS, kind)
