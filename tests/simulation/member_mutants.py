"""Planted mistakes about members of a group, in the client's consumer; each must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kmq_spark.client.consuming.assignment import Assignment
from kmq_spark.client.consuming.consumer import Consumer
from kmq_spark.client.consuming.fetcher import Fetcher
from kmq_spark.client.consuming.group_member import GroupMember
from kmq_spark.client.consuming.hand import Hand
from kmq_spark.client.consuming.turns import Turns
from kmq_spark.client.consuming.uncommitted import Uncommitted
from kmq_storage.format.group_entries import GroupPlan
from kmq_storage.groups.administration import offset_entries
from kmq_storage.groups.membership import SharedMembership
from kmq_storage.log.state.group_state import Group
from tests.simulation.mutants import Mutant, _nothing


def commits_what_it_only_has_in_hand(patch: pytest.MonkeyPatch) -> None:
    """The offset behind records that were fetched is committed."""
    patch.setattr(Assignment, "places", lambda assignment: dict(assignment.fetcher.positions))


def keeps_in_hand_what_went(patch: pytest.MonkeyPatch) -> None:
    """Records of a partition that was lost are handed out."""

    def remove(fetcher: Fetcher, partition: Any) -> None:
        fetcher.positions.pop(partition, None)
        fetcher._turns.give_up()

    patch.setattr(Fetcher, "remove", remove)


def drops_what_it_puts_back(patch: pytest.MonkeyPatch) -> None:
    """Records in hand go when the consumer pauses, seeks or gives something away."""

    def put_back(fetcher: Fetcher) -> None:
        fetcher.holding.hand = Hand()

    patch.setattr(Fetcher, "put_back", put_back)


def counts_what_nobody_got(patch: pytest.MonkeyPatch) -> None:
    """What a call took that was given up counts as handed out."""

    def go_back(fetcher: Fetcher) -> None:
        fetcher.holding.before = {}

    patch.setattr(Fetcher, "go_back", go_back)


def says_nothing_of_what_comes_again(patch: pytest.MonkeyPatch) -> None:
    """A commit leaves out what another member gets again."""
    patch.setattr(Uncommitted, "part", lambda *_, **__: False)


def loses_nothing(patch: pytest.MonkeyPatch) -> None:
    """What was taken from a member is read on."""
    patch.setattr(Assignment, "_lose", _nothing)


def wakes_nobody(patch: pytest.MonkeyPatch) -> None:
    """A partition that was at its end is not asked again."""
    original = Turns.look

    def look(turns: Turns, state: Any, assigned: Any) -> None:
        if state is not turns._state:
            original(turns, state, assigned)

    patch.setattr(Turns, "look", look)


def hands_out_what_is_paused(patch: pytest.MonkeyPatch) -> None:
    """A pause is forgotten."""
    patch.setattr(Assignment, "pause", lambda assignment, _: assignment.fetcher.put_back())


def plans_on_what_another_thread_saw(patch: pytest.MonkeyPatch) -> None:
    """A plan is dated by the generation that is known when it is made, not when it was begun."""
    original = SharedMembership._plan

    def plan(place: SharedMembership, make: Callable[..., GroupPlan | None]) -> None:
        def made(group: Group, topics: Any) -> GroupPlan | None:
            found = make(group, topics)
            group.generation = place._log.written_state().group(place._group).generation
            return found

        original(place, made)

    patch.setattr(SharedMembership, "_plan", plan)


def commits_nothing_at_its_end(patch: pytest.MonkeyPatch) -> None:
    """A close leaves out what was handed out last, in spite of auto_commit."""
    original = Consumer._end
    patch.setattr(Consumer, "_end", lambda consumer, **_: original(consumer, commit=False))


def gives_away_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """The subscriber isn't told that a partition goes."""
    patch.setattr(Assignment, "_ask", _nothing)


def commits_as_an_administrator(patch: pytest.MonkeyPatch) -> None:
    """Offsets are committed whoever owns the partition."""

    def entries(member: GroupMember, state: Any, offsets: Any) -> Any:
        return offset_entries(state, member.group, offsets, generation=-1)

    patch.setattr(GroupMember, "_entries", entries)


def begins_at_the_first_record(patch: pytest.MonkeyPatch) -> None:
    """Where the group goes on is not asked for."""
    patch.setattr(Assignment, "_committed", _nothing)


def commits_around_what_comes_again(patch: pytest.MonkeyPatch) -> None:
    """A transaction has the offsets of what its consumer still reads."""
    original = Consumer._offsets_to_commit

    def offsets_to_commit(consumer: Consumer, *offsets: Any) -> Any:
        consumer._uncommitted.gone.clear()
        return original(consumer, *offsets)

    patch.setattr(Consumer, "_offsets_to_commit", offsets_to_commit)


def looks_once_at_what_changed_twice(patch: pytest.MonkeyPatch) -> None:
    """A change of the group while a member looks at it counts as seen."""
    original = Assignment._resolve

    def resolve(assignment: Assignment, state: Any, **options: Any) -> None:
        original(assignment, state, **options)
        assert assignment._member is not None
        assignment.version = assignment._member.version(assignment._log.state)

    patch.setattr(Assignment, "_resolve", resolve)


MEMBER_MUTANTS: tuple[Mutant, ...] = (
    commits_what_it_only_has_in_hand,
    keeps_in_hand_what_went,
    drops_what_it_puts_back,
    counts_what_nobody_got,
    says_nothing_of_what_comes_again,
    loses_nothing,
    wakes_nobody,
    hands_out_what_is_paused,
    plans_on_what_another_thread_saw,
    commits_nothing_at_its_end,
    gives_away_without_a_word,
    commits_as_an_administrator,
    begins_at_the_first_record,
    commits_around_what_comes_again,
    looks_once_at_what_changed_twice,
)
