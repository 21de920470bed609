"""Planted mistakes about orderly members, in the client; each must be found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kmq_spark.client.consuming.assignment import Assignment
from kmq_spark.client.orderly import listening, rules
from kmq_spark.client.orderly.process_queue import QueueState
from kmq_spark.client.orderly.rules import Step
from tests.simulation.mutants import Mutant


def commits_what_is_to_come_again(patch: pytest.MonkeyPatch) -> None:
    """The offset behind a suspended record is committed."""
    original = rules.settled

    def settled(
        records: Sequence[Any], state: QueueState, step: Step, *, auto_commit: bool
    ) -> QueueState:
        after = original(records, state, step, auto_commit=auto_commit)
        return replace(after, offset=records[-1].offset + 1) if step is Step.AGAIN else after

    patch.setattr(listening, "settled", settled)


def goes_on_behind_what_was_suspended(patch: pytest.MonkeyPatch) -> None:
    """What was suspended is not put back."""
    patch.setattr(rules, "consume_again", lambda state, _: state)


def rolls_back_the_last_only(patch: pytest.MonkeyPatch) -> None:
    """Of what waits for its COMMIT the last record comes again."""

    def rollback(state: QueueState) -> QueueState:
        return replace(state, waiting=(*state.consuming[-1:], *state.waiting), consuming=())

    patch.setattr(rules, "rollback", rollback)


def gives_away_before_its_subscriber_knows(patch: pytest.MonkeyPatch) -> None:
    """A partition is another member's while this one still has records of it."""
    original = Assignment._ask

    def ask(assignment: Assignment, going: Any) -> Any:
        member, state = assignment._member, assignment._log.state
        assert member is not None
        if going:
            member.release(state, [each.key for each in going], {})
        return original(assignment, going)

    patch.setattr(Assignment, "_ask", ask)


def begins_where_it_began_before(patch: pytest.MonkeyPatch) -> None:
    """What others did with a partition meanwhile is not asked for."""
    original = Assignment._committed

    def committed(assignment: Any, state: Any, partition: Any) -> int | None:
        known = vars(assignment).setdefault("known", {})
        return known.setdefault(partition, original(assignment, state, partition))

    patch.setattr(Assignment, "_committed", committed)


CONSUMING_MUTANTS: tuple[Mutant, ...] = (
    commits_what_is_to_come_again,
    goes_on_behind_what_was_suspended,
    rolls_back_the_last_only,
    gives_away_before_its_subscriber_knows,
    begins_where_it_began_before,
)
