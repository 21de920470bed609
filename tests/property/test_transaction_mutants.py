"""Finds a model of transactions that has gone blind: each planted mistake must make it fail."""

from __future__ import annotations

from typing import Any

import pytest

from kmq_spark.client.sending import beside, written
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.client.sending.pending import Pending
from kmq_storage.log.binding import binding
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.state.queues.queue import Queue
from tests.property import test_transaction_model as model
from tests.property.planted import Mutant, check_finds


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


def acknowledges_nothing(patch: pytest.MonkeyPatch) -> None:
    """What was made of a record is stored, and the record comes again."""
    patch.setattr(beside.Acknowledged, "entries", lambda _: [])


def acknowledges_at_once(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement counts, whatever becomes of its transaction."""
    patch.setattr(beside.Acknowledged, "add", lambda _, delivery: delivery.ack())


def acknowledges_again(patch: pytest.MonkeyPatch) -> None:
    """Two transactions are made of one record."""
    patch.setattr(Queue, "check_answer", lambda *_: None)


_MUTANTS: tuple[Mutant, ...] = (
    leaves_out_what_is_refused,
    forgets_the_offsets,
    commits_what_was_aborted,
    lets_batches_pass,
    stages_what_is_last_first,
    fences_nobody,
    acknowledges_nothing,
    acknowledges_at_once,
    acknowledges_again,
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", _MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_transactions_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    check_finds([model.TransactionModel], model.TestTransactions.settings)
