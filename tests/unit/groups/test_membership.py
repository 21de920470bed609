"""A member's place in its group.

Finds: a member that is in the group twice since it was not told that it is in, and one that goes
on with what it has in hand though it was told that it is out, or that nobody replaces. In a large
group: a member that looks at each of the others before it joins, and looks that keep a host busy.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.format.group_entries import GroupPlan, GroupPlanEntry, Interest, PlannedMember
from kmq_storage.groups.membership import MemberSettings, SharedMembership
from kmq_storage.log.binding.binding import Unit
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


#: The epoch of the first of many members; who joins after them has a lower one.
_FIRST = 1_000_000


def _large_group(store: kmq.Store, members: int, *, static: bool = False) -> SharedMembership:
    """A plan of members of whom none was ever here; and one more who is to join."""
    plan = GroupPlan(
        {
            _FIRST + n: PlannedMember(f"{n:032x}", f"m{n}", static, "", "range", 45.0)
            for n in range(members)
        }
    )
    store.log.commit([Unit((GroupPlanEntry("g", 1, plan),))])
    return SharedMembership(store.log, "g", MemberSettings("me", False, "range", 45.0))


def _beats(monkeypatch: pytest.MonkeyPatch, alive: frozenset[int]) -> list[int]:
    """Have these members live; those at which somebody looks."""
    looked: list[int] = []

    def beat_of(_: SharedMembership, member: PlannedMember) -> int | None:
        looked.append(int(member.id, 16))
        return 1 if looked[-1] in alive else None

    monkeypatch.setattr(SharedMembership, "_beat_of", beat_of)
    return looked


def test_who_joins_a_large_group_looks_at_few_members(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    place = _large_group(store, 1_000)
    looked = _beats(monkeypatch, frozenset({3, 900}))
    place.enter(Interest())
    assert looked == list(range(32))
    members = store.log.refresh().groups["g"].plan.members
    assert [n - _FIRST for n in members] == [3, *range(32, 1_000), place.epoch - _FIRST]
    place.leave()


def test_who_joins_a_large_group_of_dead_members_finds_the_one_that_lives(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """Else it would not wait for static names."""
    place = _large_group(store, 100, static=True)
    _beats(monkeypatch, frozenset({90}))
    place.enter(Interest())
    assert len(store.log.refresh().groups["g"].plan.members) == 101
    place.leave()


def test_members_of_a_large_group_look_around_less_often(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    place = _large_group(store, 1_000)
    _beats(monkeypatch, frozenset(range(1_000)))
    steps = [place.step]
    place.enter(Interest())
    place.look_around()
    steps.append(place.step)
    assert steps == [0.25, pytest.approx(1_001 / 400)]
    place.leave()


def test_one_that_makes_no_calls_is_replaced_however_long_sessions_are(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """In a bucket, members give signs of life and look at others three times a session only."""
    monkeypatch.setattr(SharedMembership, "step", 10_000.0)
    store.create_topic("t")
    slow = store.consumer("g", topics=["t"], max_poll_interval=0.05)
    assert slow.assignment() == {"t": [0]}
    quick = store.consumer("g", topics=["t"])
    while not quick.assignment():
        time.sleep(0.01)
    with pytest.raises(kmq.FencedError):
        slow.commit({"t": {0: 0}})
