"""Finds a harness that has gone blind: each planted mistake must make some seed fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.ahead_mutants import AHEAD_MUTANTS
from tests.simulation.bucket_mutants import BUCKET_MUTANTS
from tests.simulation.bucket_world import BucketWorld
from tests.simulation.choosy_mutants import CHOOSY_MUTANTS
from tests.simulation.collection_mutants import COLLECTION_MUTANTS
from tests.simulation.group_mutants import GROUP_BUCKET_MUTANTS
from tests.simulation.member_mutants import MEMBER_MUTANTS
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.orderly_mutants import CONSUMING_MUTANTS
from tests.simulation.queue_mutants import ORDERLY_MUTANTS, QUEUE_MUTANTS
from tests.simulation.rebinding_mutants import REBINDING_MUTANTS
from tests.simulation.seeds import shows
from tests.simulation.transaction_mutants import TRANSACTION_MUTANTS

_LIST = Path(__file__).parents[2] / "docs" / "design" / "simulation.md"
_OF_QUEUES = (
    *QUEUE_MUTANTS,
    *ORDERLY_MUTANTS,
    *REBINDING_MUTANTS,
    *CHOOSY_MUTANTS,
    *AHEAD_MUTANTS,
    *TRANSACTION_MUTANTS,
    *CONSUMING_MUTANTS,
)
_OF_LOGS = (*MUTANTS, *COLLECTION_MUTANTS, *BUCKET_MUTANTS, *GROUP_BUCKET_MUTANTS, *MEMBER_MUTANTS)
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


def test_every_planted_mistake_is_listed_with_what_it_does_wrong():
    listed = _LIST.read_text()
    rows = (f"| `{mutant.__name__}` |" for mutant in _OF_LOGS + _OF_QUEUES)
    assert [row for row in rows if row not in listed] == []
