"""Members that share a group on a simulated machine that fails, and mistakes planted there.

Finds: an interleaving, a stall or a crash after which two members read one partition, one commits
what it lost, or a commit that was acknowledged is taken back.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.group_mutants import GROUP_MUTANTS
from tests.simulation.mutants import Mutant
from tests.simulation.seeds import ASKED, shows, worlds_of
from tests.simulation.sharing import GroupWorld

_SEEDS = ASKED or list(range(80, 160))
_MUTANT_SEEDS = 300
#: What the seeds do at least.
_AT_LEAST = {"joined": 100, "released": 15, "fenced": 1, "checkpoints": 30}


def test_no_partition_has_two_readers_and_no_commit_is_taken_back():
    done: Counter[str] = Counter()
    for world in worlds_of(_SEEDS, GroupWorld, "pytest tests/simulation/test_groups.py"):
        done += world.done
    for what, least in ({} if ASKED else _AT_LEAST).items():
        assert done[what] > least, what


@pytest.mark.parametrize("mutant", GROUP_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_groups_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    assert shows(mutant.__name__, _MUTANT_SEEDS, GroupWorld)
