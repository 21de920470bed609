"""Finds a harness that has gone blind: each planted mistake must make some seed fail."""

from __future__ import annotations

import pytest

from tests.simulation.bucket_mutants import BUCKET_MUTANTS
from tests.simulation.bucket_world import BucketWorld
from tests.simulation.collection_mutants import COLLECTION_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.seeds import shows

_SEEDS = 500


@pytest.mark.parametrize("mutant", MUTANTS + COLLECTION_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    assert shows(mutant.__name__, _SEEDS)


@pytest.mark.parametrize("mutant", BUCKET_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_buckets_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    assert shows(mutant.__name__, _SEEDS, BucketWorld)
