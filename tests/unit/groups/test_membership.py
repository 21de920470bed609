"""A member's place in its group.

Finds: a member that is in the group twice since it was not told that it is in, and one that goes
on with what it has in hand though it was told that it is out.
"""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.format.group_entries import Interest
from kmq_storage.groups.membership import MemberSettings, SharedMembership
from tests.support.members import without_watch


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


def test_who_was_told_to_be_out_polls_nothing_more_that_it_had_in_hand(store: kmq.Store):
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"%d" % n for n in range(10)])
    with without_watch():
        old = store.consumer("g", topics=["t"], name="a")
        assert old.poll() is not None
        store.consumer("g", topics=["t"], name="a")
    with pytest.raises(kmq.FencedError):
        old.commit()
    for _ in range(2):
        with pytest.raises(kmq.FencedError, match="was opened again"):
            old.poll()
