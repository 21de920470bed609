"""Who of a group is taken for dead, and who looks after whom.

Finds: a live member that is planned away, a dead or stopped one that nobody finds, and members
that all look after all.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kmq_storage.format.group_entries import GroupPlan, PlannedMember
from kmq_storage.groups.liveness import Liveness

STEP, TIMEOUT = 1.0, 10.0
#: The share of its timeout after which a member beats and looks in a bucket.
BUCKET = 1 / 3


def _plan(*static: bool) -> GroupPlan:
    return GroupPlan(
        {
            epoch: PlannedMember(str(epoch), f"m{epoch}", each, "", "range", TIMEOUT)
            for epoch, each in enumerate(static, 1)
        }
    )


class _Group:
    """Members whose beats a test sets; who looks is member 1."""

    def __init__(self, *static: bool, interval: float = STEP / TIMEOUT) -> None:
        """`interval`: the share of its timeout after which a member beats and looks."""
        self.plan = _plan(*static)
        self.beats: dict[str, int | None] = {each.id: 0 for each in self.plan.members.values()}
        self.now = 100.0
        self.liveness = Liveness(lambda timeout, _: timeout * interval, TIMEOUT)
        self.looked: list[str] = []

    def look(self, *, after: float | None = None, own: int = 1) -> set[int]:
        self.now += self.liveness.step if after is None else after
        self.looked = []
        return self.liveness.dead(self.plan, own, self._beat, self.now)

    def _beat(self, member: PlannedMember) -> int | None:
        self.looked.append(member.id)
        return self.beats[member.id]

    def beat(self, *ids: str) -> None:
        for member in ids:
            self.beats[member] = (self.beats[member] or 0) + 1


def test_each_member_looks_after_the_next_one_that_lives():
    group = _Group(False, False, False)
    watched = []
    for own in (1, 2, 3):
        group.look(own=own)
        watched.append(group.looked)
    assert watched == [["2"], ["3"], ["1"]]


def test_one_that_is_gone_is_dead_at_once_and_the_next_one_is_looked_after():
    group = _Group(False, False, False)
    group.beats["2"] = None
    assert group.look() == {2}
    assert group.looked == ["2", "3"]
    group.beats["3"] = None
    assert group.look() == {2, 3}


def test_a_static_name_that_is_gone_is_waited_for_until_its_timeout():
    group = _Group(False, True, False)
    group.beats["2"] = None
    found = []
    for _ in range(12):
        group.beat("3")
        found.append(group.look())
    assert found == [set()] * 11 + [{2}]


def test_one_that_is_stopped_is_dead_after_its_timeout():
    group = _Group(False, False)
    found = [group.look() for _ in range(12)]
    assert found == [set()] * 11 + [{2}]


def test_one_that_beats_now_and_then_is_never_dead():
    group = _Group(False, False)
    for number in range(100):
        if number % 9 == 0:
            group.beat("2")
        assert group.look() == set()


def test_those_behind_a_stopped_one_are_looked_after_before_it_counts_as_dead():
    group = _Group(False, False, False)
    for _ in range(5):
        group.beat("3")
        assert group.look() == set()
    group.beats["3"] = None
    assert group.look() == {3}


@pytest.mark.parametrize("interval", [STEP / TIMEOUT, BUCKET])
def test_those_that_fell_silent_together_are_dead_soon_after_the_first(interval: float):
    """In a bucket, where members beat and look three times a session only, too."""
    group = _Group(*[False] * 10, interval=interval)
    group.look()
    since = group.now
    while len(group.look()) < 8:
        group.beat("10")
        assert group.now - since < 2.5 * TIMEOUT
    assert group.looked == [str(number) for number in range(2, 11)]
    group.beat("10")
    assert group.look() == set(range(2, 10))


def test_behind_one_that_is_quiet_those_are_looked_at_that_have_not_shown_life_yet():
    group = _Group(*[False] * 50, interval=BUCKET)
    looks = []
    for _ in range(4):
        group.look()
        group.beat(*map(str, range(3, 51)))
        looks.append(len(group.looked))
    assert looks == [1, 1, 33, 2]


def test_a_member_looks_as_often_as_the_one_asks_for_that_it_watches():
    group = _Group(False, False, False, interval=BUCKET)
    steps = []
    for second in (6.0, 600.0):
        members = {**group.plan.members, 2: replace(group.plan.members[2], timeout=second)}
        group.plan = replace(group.plan, members=members)
        group.liveness.pace(group.plan, 1)
        steps.append(group.liveness.step)
    assert steps == [pytest.approx(2.0), pytest.approx(TIMEOUT / 3)]


def test_an_observer_that_was_stopped_itself_takes_nobody_for_dead():
    group = _Group(False, False)
    group.look()
    for _ in range(3):  # three sleeps of an hour, in which the other one was stopped, too
        assert group.look(after=3_600.0) == set()
    group.beat("2")
    assert group.look() == set()


def test_one_that_came_again_counts_from_anew():
    group = _Group(False, True)
    group.beats["2"] = None
    for _ in range(8):
        group.look()
    group.beats["2"] = 1
    for _ in range(8):
        assert group.look() == set()
