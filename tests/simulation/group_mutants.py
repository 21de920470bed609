"""Planted mistakes about members that share a group; each must be found."""

from __future__ import annotations

from typing import Any

import pytest

from kmq_storage.format.group_entries import NO_PLAN, GroupPlan
from kmq_storage.groups import planning
from kmq_storage.groups.liveness import Liveness
from kmq_storage.groups.membership import SharedMembership
from kmq_storage.log.binding import binding
from kmq_storage.log.checkpoints import checkpoint
from kmq_storage.log.state.group_state import Group
from kmq_storage.log.state.store_state import StoreState
from tests.simulation.bucket_mutants import (
    goes_on_where_it_knows_no_better,
    puts_over_what_is_there,
    takes_no_answer_for_a_yes,
)
from tests.simulation.mutants import Mutant, _nothing


def plans_without_comparing(patch: pytest.MonkeyPatch) -> None:
    """A plan overrules one that its maker never saw."""
    patch.setattr(binding, "check_plan", _nothing)


def lets_every_member_commit(patch: pytest.MonkeyPatch) -> None:
    """One that was stopped for long commits what it read before."""
    patch.setattr(binding, "check_ownership", _nothing)


def gives_before_the_release(patch: pytest.MonkeyPatch) -> None:
    """A partition is its target's as soon as that is planned."""
    original = planning._planned

    def at_once(*arguments: Any) -> GroupPlan:
        plan = original(*arguments)
        return GroupPlan(plan.members, {**plan.owners, **plan.targets}, {})

    patch.setattr(planning, "_planned", at_once)


def takes_releases_of_old_plans(patch: pytest.MonkeyPatch) -> None:
    """What is released goes on, whoever owns it by now."""
    patch.setattr(binding, "check_release", _nothing)


def counts_no_release_as_a_change(patch: pytest.MonkeyPatch) -> None:
    """A plan that was made before a release takes it back."""
    original = Group.apply_release

    def apply(group: Group, entry: Any) -> None:
        original(group, entry)
        group.generation -= 1

    patch.setattr(Group, "apply_release", apply)


def keeps_the_older_of_a_name(patch: pytest.MonkeyPatch) -> None:
    """A newer member of a static name stands beside the older one."""
    patch.setattr(planning, "_is_same", lambda *_: False)


def joins_again_when_the_outcome_is_unknown(patch: pytest.MonkeyPatch) -> None:
    """A plan that was not answered may have it, and it makes another one."""
    original = SharedMembership._epoch_in

    def epoch_in(place: SharedMembership, plan: GroupPlan) -> int:
        return original(place, plan) if place.epoch else 0

    patch.setattr(SharedMembership, "_epoch_in", epoch_in)


def leaves_partitions_to_the_dead(patch: pytest.MonkeyPatch) -> None:
    """A lease that is not renewed is held for ever."""
    patch.setattr(Liveness, "dead", lambda *_: set())
    patch.setattr(SharedMembership, "_gone", lambda *_: [])


def forgets_members_at_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Who begins at a checkpoint knows of nobody that owns anything."""
    original = checkpoint.restored

    def restored(members: Any, manifest: Any) -> StoreState:
        state = original(members, manifest)
        for group in state.groups.values():
            group.plan = NO_PLAN
        return state

    patch.setattr(checkpoint, "restored", restored)


GROUP_MUTANTS: tuple[Mutant, ...] = (
    plans_without_comparing,
    lets_every_member_commit,
    gives_before_the_release,
    takes_releases_of_old_plans,
    counts_no_release_as_a_change,
    keeps_the_older_of_a_name,
)
#: In a bucket, where a commit may be there though its writer was told otherwise.
GROUP_BUCKET_MUTANTS: tuple[Mutant, ...] = (
    *GROUP_MUTANTS,
    joins_again_when_the_outcome_is_unknown,
    leaves_partitions_to_the_dead,
    forgets_members_at_a_checkpoint,
    takes_no_answer_for_a_yes,
    puts_over_what_is_there,
    goes_on_where_it_knows_no_better,
)
