"""Queues, transactions and orderly members where everything fails, and mistakes planted there.

Finds: an interleaving, a stall or a crash after which two hold one record, a late answer counts, a
record, an answer or a dead letter is lost or doubled, a transaction is there in part or twice, or
a record is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.simulation.ahead_mutants import AHEAD_MUTANTS
from tests.simulation.choosing import ChoosyWorld
from tests.simulation.choosy_mutants import CHOOSY_MUTANTS
from tests.simulation.holding_ahead import AheadWorld
from tests.simulation.mutants import Mutant
from tests.simulation.ordering import OrderlyWorld
from tests.simulation.orderly_mutants import CONSUMING_MUTANTS
from tests.simulation.queue_mutants import ORDERLY_MUTANTS, QUEUE_MUTANTS
from tests.simulation.queue_world import QueueBucketWorld, QueueWorld
from tests.simulation.rebinding import RebindingWorld
from tests.simulation.rebinding_mutants import REBINDING_MUTANTS
from tests.simulation.seeds import ASKED, shows, worlds_of
from tests.simulation.transaction_mutants import TRANSACTION_MUTANTS
from tests.simulation.world import World

_MUTANT_SEEDS = 1000
#: The world in which each mistake shows.
_PLANTED: dict[type[World], Sequence[Mutant]] = {
    QueueWorld: (*QUEUE_MUTANTS, *TRANSACTION_MUTANTS),
    ChoosyWorld: CHOOSY_MUTANTS,
    RebindingWorld: REBINDING_MUTANTS,
    OrderlyWorld: (*ORDERLY_MUTANTS, *CONSUMING_MUTANTS),
    AheadWorld: AHEAD_MUTANTS,
}
#: What all seeds do at least.
_OF_QUEUES = {"received": 150, "answered": 40, "late": 15, "transactions": 15, "aborted": 8}
_OF_LOOPS = {"in files": 15, "fenced": 5, "refused": 4, "redriven": 0}
_OF_UPKEEP = {"checkpoints": 5, "collected": 15}
_OF_CHOOSERS = {"entered": 70, "left out": 15, "bound": 12, "doubles": 8}
_OF_REBINDING = {"received": 60, "late": 6, "unbound": 20, "bound": 8}
_OF_MEMBERS = {"joined": 90, "buried": 50, "fenced": 1, "checkpoints": 25}
_OF_AHEAD = {"received": 900, "from hand": 60, "rounds": 70, "noted": 90, "taken over": 25}


@pytest.mark.parametrize(
    ("kind", "seeds", "least"),
    [
        (QueueWorld, range(10, 50), _OF_QUEUES | _OF_LOOPS | _OF_UPKEEP),
        (QueueBucketWorld, range(25, 50), _OF_QUEUES | _OF_LOOPS | _OF_UPKEEP),
        (ChoosyWorld, range(30), _OF_CHOOSERS),
        (RebindingWorld, range(20), _OF_REBINDING),
        (OrderlyWorld, range(60), _OF_MEMBERS),
        (AheadWorld, range(700_000, 700_030), _OF_AHEAD),
    ],
    ids=[
        "queues",
        "queues in a bucket",
        "filters, expiry and uniq",
        "bound anew",
        "orderly members",
        "held ahead",
    ],
)
def test_no_record_is_lost_doubled_or_held_by_two(
    kind: type[World], seeds: range, least: dict[str, int]
):
    done: Counter[str] = Counter()
    for world in worlds_of(ASKED or seeds, kind, "pytest tests/simulation/test_queues.py"):
        done += world.done
    for what, count in ({} if ASKED else least).items():
        assert done[what] > count, what


@pytest.mark.parametrize(
    ("kind", "mutant"),
    [(kind, mutant) for kind, mutants in _PLANTED.items() for mutant in mutants],
    ids=lambda each: each.__name__,
)
def test_a_mistake_that_is_planted_there_is_found(
    kind: type[World], mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    assert shows(mutant.__name__, _MUTANT_SEEDS, kind)
