"""Finds a model of orderly consumption that has gone blind: it must find each planted mistake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kmq_spark.client.orderly import process_queue, rules
from kmq_spark.client.orderly.process_queue import QueueState
from kmq_spark.client.orderly.rules import OrderlySettings, OrderlyStatus, Step
from tests.property import test_orderly_model as model
from tests.property.planted import Mutant, check_finds


def _answers(
    patch: pytest.MonkeyPatch, status: OrderlyStatus, step: Step, *, by_hand: bool
) -> None:
    original = model.decide

    def decide(given: OrderlyStatus, *arguments: Any, auto_commit: bool) -> Step:
        planted = given is status and auto_commit != by_hand
        return step if planted else original(given, *arguments, auto_commit=auto_commit)

    patch.setattr(model, "decide", decide)


def commits_by_hand_what_only_succeeded(patch: pytest.MonkeyPatch) -> None:
    """An answer commits what waits for a later answer."""
    _answers(patch, OrderlyStatus.SUCCESS, Step.COMMIT, by_hand=True)


def commits_what_is_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """By hand, a rollback finishes everything."""
    _answers(patch, OrderlyStatus.ROLLBACK, Step.COMMIT, by_hand=True)


def rolls_back_by_itself(patch: pytest.MonkeyPatch) -> None:
    """With auto_commit, a rollback counts as such."""
    _answers(patch, OrderlyStatus.ROLLBACK, Step.ROLLBACK, by_hand=False)


def _exhausts(patch: pytest.MonkeyPatch, how: Any, less: int) -> None:
    def are_exhausted(counts: Sequence[int], limited: OrderlySettings) -> bool:
        most = limited.max_reconsume_times
        return most >= 0 and how(count >= most - less for count in counts)

    patch.setattr(rules, "_are_exhausted", are_exhausted)


def gives_up_one_try_early(patch: pytest.MonkeyPatch) -> None:
    """The last try never comes."""
    _exhausts(patch, all, 1)


def gives_up_one_try_late(patch: pytest.MonkeyPatch) -> None:
    """One try more than was asked for."""
    _exhausts(patch, all, -1)


def gives_up_what_has_tries_left(patch: pytest.MonkeyPatch) -> None:
    """One exhausted record takes its batch with it."""
    _exhausts(patch, any, 0)


def buries_what_shall_block(patch: pytest.MonkeyPatch) -> None:
    """`block` makes dead letters."""
    original = model.decide

    def decide(status: OrderlyStatus, counts: Any, limited: OrderlySettings, **how: bool) -> Step:
        if limited.when_exhausted == "block":
            limited = replace(limited, when_exhausted="dead_letter")
        return original(status, counts, limited, **how)

    patch.setattr(model, "decide", decide)


def counts_a_failure_per_batch(patch: pytest.MonkeyPatch) -> None:
    """How many records failed is how often the listener failed."""
    original = model.settled

    def settled(records: Sequence[Any], state: QueueState, step: Step, **how: bool) -> QueueState:
        after = original(records, state, step, **how)
        return replace(after, failed=min(after.failed, state.failed + 1))

    patch.setattr(model, "settled", settled)


def reads_again_what_is_finished(patch: pytest.MonkeyPatch) -> None:
    """What is committed comes again."""
    original = process_queue.put

    def put(state: QueueState, records: Iterable[Any]) -> QueueState:
        after = original(replace(state, offset=-1), records)
        return replace(after, offset=state.offset)

    patch.setattr(process_queue, "put", put)


def commits_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    """Who lost the partition commits all the same."""

    def uncommitted(state: QueueState) -> int | None:
        return None if state.offset == state.committed else state.offset

    patch.setattr(QueueState, "uncommitted", property(uncommitted))


def commits_what_was_put_back(patch: pytest.MonkeyPatch) -> None:
    """A commit passes records that come again."""
    original = rules.commit

    def commit(state: QueueState) -> QueueState:
        return replace(original(replace(state, waiting=())), waiting=state.waiting)

    for module in (rules, process_queue):
        patch.setattr(module, "commit", commit)


def keeps_the_counts_of_what_is_finished(patch: pytest.MonkeyPatch) -> None:
    """Every record that ever failed takes memory."""
    original = process_queue.discard

    def discard(state: QueueState, records: Iterable[Any]) -> QueueState:
        return replace(original(state, records), reconsumed=state.reconsumed)

    patch.setattr(process_queue, "discard", discard)


_MUTANTS: tuple[Mutant, ...] = (
    commits_by_hand_what_only_succeeded,
    commits_what_is_rolled_back,
    rolls_back_by_itself,
    gives_up_one_try_early,
    gives_up_one_try_late,
    gives_up_what_has_tries_left,
    buries_what_shall_block,
    counts_a_failure_per_batch,
    reads_again_what_is_finished,
    commits_what_was_dropped,
    commits_what_was_put_back,
    keeps_the_counts_of_what_is_finished,
)


@pytest.mark.parametrize("mutant", _MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_orderly_consumption_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    check_finds([model.OrderlyModel], model.TestOrderlyModel.settings)
