"""Planted mistakes about members that share a group; each must be found."""

from __future__ import annotations

from typing import Any

import pytest

from kmq_storage.format.group_entries import GroupPlan
from kmq_storage.groups import planning
from kmq_storage.log.binding import binding
from kmq_storage.log.state.group_state import Group
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


GROUP_MUTANTS: tuple[Mutant, ...] = (
    plans_without_comparing,
    lets_every_member_commit,
    gives_before_the_release,
    takes_releases_of_old_plans,
    counts_no_release_as_a_change,
    keeps_the_older_of_a_name,
)
