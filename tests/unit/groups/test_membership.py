"""A member's place in its group, without the consumer around it.

Finds: a member that is in the group twice since it was not told that it is in.
"""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.format.group_entries import Interest
from kmq_storage.membership import MemberSettings, SharedMembership


def test_a_member_whose_joining_had_no_known_outcome_is_in_the_group_once(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """The plan is in the log, but its maker was told that nobody knows."""
    store.create_topic("t", partitions=6)
    commit = store.log.commit

    def commit_and_fail(units: Any, **options: Any) -> Any:
        commit(units, **options)
        monkeypatch.undo()
        raise kmq.CommitOutcomeUnknownError("the answer was lost")

    monkeypatch.setattr(store.log, "commit", commit_and_fail)
    place = SharedMembership(store.log, "g", MemberSettings("m", False, "range", 45.0))
    with pytest.raises(kmq.CommitOutcomeUnknownError):
        place.enter(Interest(("t",)))
    place.enter(Interest(("t",)))
    plan = store.log.refresh().groups["g"].plan
    assert list(plan.members) == [place.epoch]
    assert len(plan.owned_by(place.epoch)) == 6
    place.leave()
