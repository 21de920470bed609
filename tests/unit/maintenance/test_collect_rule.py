"""Which checkpoints are retained, and what goes with the others: the rule itself, on values."""

from __future__ import annotations

import pytest

from kmq_storage.maintenance.collect import Root, plan_roots
from kmq_storage.objects.disk import FoundFile


def _roots(**ages: int) -> list[Root]:
    """Roots by LSN, as `at10=5`: that of LSN 10 was written at 5."""
    return [
        Root(FoundFile(name, 0, modified), int(name.removeprefix("at")), b"")
        for name, modified in ages.items()
    ]


@pytest.mark.parametrize(
    ("since", "pinned", "retained", "floor"),
    [
        (100, None, [30], 30),  # all are old: the newest alone
        (29, None, [30, 20], 20),  # 20 was the newest until 30 came, within the grace time
        (15, None, [30, 20, 10], 10),
        (5, None, [30, 20, 10], 0),  # none is old: nothing is known to be out of use
        (100, 25, [30, 20], 20),  # a pin at 25 was reached from 20
        (100, 30, [30], 30),
        (100, 10, [30, 20, 10], 10),
        (100, 9, [30, 20, 10], 0),  # a pin from before the first checkpoint
        (29, 15, [30, 20, 10], 10),
    ],
)
def test_roots_are_retained_for_who_found_a_file_through_them(
    since: int, pinned: int | None, retained: list[int], floor: int
):
    plan = plan_roots(_roots(at20=20, at10=10, at30=30), since=since, pinned=pinned)
    assert [root.lsn for root in plan.retained] == retained
    assert sorted(root.lsn for root in plan.dropped) == sorted({10, 20, 30} - set(retained))
    assert plan.floor == floor


def test_a_root_that_was_written_late_keeps_the_one_before_it():
    plan = plan_roots(_roots(at10=1, at20=90, at30=2), since=50, pinned=None)
    assert [root.lsn for root in plan.retained] == [30, 20, 10]


def test_roots_of_one_lsn_are_retained_together_since_each_has_pages_of_its_own():
    twins = [Root(FoundFile(digest.hex(), 0, 20), 20, digest) for digest in (b"a", b"b")]
    plan = plan_roots([*twins, *_roots(at30=25, at10=10)], since=22, pinned=None)
    assert sorted(root.digest for root in plan.retained if root.lsn == 20) == [b"a", b"b"]
    assert [root.lsn for root in plan.dropped] == [10]


def test_without_a_root_nothing_is_retained_and_nothing_goes():
    plan = plan_roots([], since=50, pinned=None)
    assert (plan.retained, plan.dropped, plan.floor) == ((), (), 0)
