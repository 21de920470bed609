"""Members that share a group on a simulated machine that fails, and mistakes planted there.

Finds: an interleaving, a stall or a crash after which two members read one partition, one commits
what it lost, or a commit that was acknowledged is taken back.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.group_mutants import GROUP_MUTANTS
from tests.simulation.mutants import Mutant
from tests.simulation.sharing import GroupWorld
from tests.simulation.world import run

_ASKED = [int(seed) for seed in os.environ.get("KMQ_SIM_SEEDS", "").split(",") if seed]
_SEEDS = _ASKED or list(range(60))
_MUTANT_SEEDS = 300
#: What the seeds do at least.
_AT_LEAST = {"joined": 150, "released": 25, "fenced": 3, "checkpoints": 50}


def test_no_partition_has_two_readers_and_no_commit_is_taken_back():
    done: Counter[str] = Counter()
    for seed in _SEEDS:
        try:
            done += run(seed, GroupWorld).done
        except Exception as error:
            error.add_note(f"again: KMQ_SIM_SEEDS={seed} pytest tests/simulation/test_groups.py")
            raise
    for what, least in ({} if _ASKED else _AT_LEAST).items():
        assert done[what] > least, what


@pytest.mark.parametrize("mutant", GROUP_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_groups_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    assert any(map(_fails, range(_MUTANT_SEEDS)))


def _fails(seed: int) -> bool:
    try:
        run(seed, GroupWorld)
    except Exception:
        return True
    return False
