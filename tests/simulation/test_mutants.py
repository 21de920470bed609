"""Finds a harness that has gone blind: each planted mistake must make some seed fail."""

from __future__ import annotations

import pytest

from tests.simulation.bucket_mutants import BUCKET_MUTANTS
from tests.simulation.bucket_world import BucketWorld
from tests.simulation.collection_mutants import COLLECTION_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.seeds import first_failure

_SEEDS = 500
#: Where a mistake shows late: the seed that showed it last is tried first.
_SHOWN_BY = {
    "tells_nobody_of_losses": 175,
    "leaves_later_files_after_a_cut": 148,
    "removes_without_sync": 37,
    "deletes_without_a_mark": 120,
    "collects_before_the_grace_time_is_over": 198,
}


@pytest.mark.parametrize("mutant", MUTANTS + COLLECTION_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    seeds = [_SHOWN_BY.get(mutant.__name__, 0), *range(_SEEDS)]
    assert first_failure(seeds) is not None


@pytest.mark.parametrize("mutant", BUCKET_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_buckets_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    seeds = [_SHOWN_BY.get(mutant.__name__, 0), *range(_SEEDS)]
    assert first_failure(seeds, BucketWorld) is not None
