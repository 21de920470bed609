"""Finds a model of transactions that has gone blind: each planted mistake must make it fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kmq_spark.client.sending import beside, written
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.client.sending.pending import Pending
from kmq_storage.log.binding import binding
from kmq_storage.log.binding.binding import Unit
from tests.property.test_transaction_model import TransactionModel

Mutant = Callable[[pytest.MonkeyPatch], None]
_MANY = settings(
    max_examples=300, stateful_step_count=25, deadline=None, database=None, derandomize=True,
    phases=(Phase.generate,), print_blob=False,
)  # fmt: skip


def leaves_out_what_is_refused(patch: pytest.MonkeyPatch) -> None:
    """What can be stored is stored."""
    patch.setattr(Gathered, "first_error", lambda gathered: gathered.failure)


def forgets_the_offsets(patch: pytest.MonkeyPatch) -> None:
    """Records without the offsets that they were made of."""
    patch.setattr(beside.GroupOffsets, "unit", lambda *_: Unit(()))


def commits_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    """An abort ends it as a commit does."""
    original = Pending.end
    patch.setattr(Pending, "end", lambda pending, gathered, *_: original(pending, gathered))


def lets_batches_pass(patch: pytest.MonkeyPatch) -> None:
    """Single records take part, batches are committed at once."""

    def put(pending: Pending, sends: Any) -> None:
        pending._waiting.append(sends)

    patch.setattr(Pending, "put", put)


def stages_what_is_last_first(patch: pytest.MonkeyPatch) -> None:
    """Files stand behind what stayed in memory."""
    original = written.joined

    def joined(units: Any) -> Any:
        return original(sorted(units, key=lambda unit: not unit.bodies))

    patch.setattr(written, "joined", joined)


def fences_nobody(patch: pytest.MonkeyPatch) -> None:
    """An older instance commits beside its successor."""
    patch.setattr(binding._Binding, "_producer", lambda *_: None)


_MUTANTS: tuple[Mutant, ...] = (
    leaves_out_what_is_refused,
    forgets_the_offsets,
    commits_what_was_aborted,
    lets_batches_pass,
    stages_what_is_last_first,
    fences_nobody,
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", _MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_transactions_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017 - whatever the model stumbles over
        run_state_machine_as_test(TransactionModel, settings=_MANY)
