"""Finds a harness that has gone blind: each planted mistake must make some seed fail."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.simulation.bucket_mutants import BUCKET_MUTANTS
from tests.simulation.bucket_world import BucketWorld
from tests.simulation.collection_mutants import COLLECTION_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import World, simulate

_SEEDS = 500
#: Where a mistake shows late: the seed that showed it last is tried first.
_SHOWN_BY = {
    "forgets_who_died_in_a_sync": 195,
    "reads_back_nothing": 1789,
    "leaves_later_files_after_a_cut": 148,
    "never_looks_for_moved_files": 246,
    "removes_without_sync": 104,
    "names_what_was_condemned": 1157,
    "forgets_that_names_are_free_again": 209,
    "acknowledges_a_void_commit": 1218,
    "never_begins_anew": 910,
    "deletes_without_a_mark": 120,
}


def _first_failure(seeds: Iterable[int], kind: type[World] = World) -> int | None:
    for seed in seeds:
        try:
            simulate(seed, kind)
        except Exception:
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS + COLLECTION_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    seeds = [_SHOWN_BY.get(mutant.__name__, 0), *range(_SEEDS)]
    assert _first_failure(seeds) is not None


@pytest.mark.parametrize("mutant", BUCKET_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_buckets_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    seeds = [_SHOWN_BY.get(mutant.__name__, 0), *range(_SEEDS)]
    assert _first_failure(seeds, BucketWorld) is not None
