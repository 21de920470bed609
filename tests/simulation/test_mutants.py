"""Finds a harness that has gone blind: each planted mistake must make some seed fail."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import simulate

_SEEDS = 150


def _first_failure(seeds: range) -> int | None:
    for seed in seeds:
        try:
            simulate(seed)
        except Exception:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    assert _first_failure(range(_SEEDS)) is not None
