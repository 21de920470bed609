"""Finds a harness that has gone blind: each planted mistake must make some seed fail."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import simulate

_SEEDS = 150
#: Where a mistake shows late: the seed that showed it last is tried first.
_SHOWN_BY = {
    "never_looks_for_moved_files": 75,
    "collects_before_the_grace_time_is_over": 93,
    "leaves_later_files_after_a_cut": 19,
}


def _first_failure(seeds: Iterable[int]) -> int | None:
    for seed in seeds:
        try:
            simulate(seed)
        except Exception:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    seeds = [_SHOWN_BY.get(mutant.__name__, 0), *range(_SEEDS)]
    assert _first_failure(seeds) is not None
