"""Finds a model of groups that has gone blind: it must find each planted mistake."""

from __future__ import annotations

import pytest

from kmq_storage.format.group_entries import GroupPlan, GroupReleaseEntry
from kmq_storage.log.state.group_state import Group
from tests.property import test_group_model as model
from tests.property.planted import Mutant, check_finds
from tests.simulation import group_mutants as known


def forgets_whom_a_release_is_for(patch: pytest.MonkeyPatch) -> None:
    """What is released is nobody's."""

    def apply(group: Group, entry: GroupReleaseEntry) -> None:
        owners = {key: at for key, at in group.plan.owners.items() if key not in entry.partitions}
        targets = {key: at for key, at in group.plan.targets.items() if key in owners}
        group.plan = GroupPlan(group.plan.members, owners, targets)
        group.generation += 1

    patch.setattr(Group, "apply_release", apply)


_MUTANTS: tuple[Mutant, ...] = (
    forgets_whom_a_release_is_for,
    known.plans_without_comparing,
    known.lets_every_member_commit,
    known.gives_before_the_release,
    known.takes_releases_of_old_plans,
    known.counts_no_release_as_a_change,
    known.keeps_the_older_of_a_name,
)


@pytest.mark.parametrize("mutant", _MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_that_is_planted_in_groups_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    check_finds([model.GroupModel, model.RangeModel], model.TestSticky.settings)
