"""Which checkpoints are retained, and what goes with the others: the rule itself, on values."""

from __future__ import annotations

import uuid

import pytest

from kmq_storage import paths
from kmq_storage.format.file_ids import new_file_id
from kmq_storage.maintenance.collect_rule import CollectFacts, Root, plan_collect, plan_roots
from kmq_storage.maintenance.references import References
from kmq_storage.objects.files import FoundFile
from kmq_storage.objects.memory import memory_disk


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


def _facts(*files: FoundFile, kept: bytes = b"", named: bytes = b"", **changes: int):
    """Facts of a store at LSN 40 whose one checkpoint is of LSN 30; `kept` and `named` are ids."""
    of = {}
    for name, file_id in (("kept", kept), ("named", named)):
        of[name] = References(memory_disk("no pages are read"))
        of[name].add_ids([file_id])
    numbers = {"condemned": 0, "lsn": 40, "orphans_before": 1000} | changes
    roots = plan_roots(_roots(at30=20), since=50, pinned=None)
    return CollectFacts(files, of["kept"], of["named"], roots, **numbers)


def _staged(begun: int, modified: int = 500) -> tuple[bytes, FoundFile]:
    file_id = new_file_id(uuid.UUID(int=begun), begun)
    return file_id, FoundFile(paths.staged_file(file_id), 10, modified)


def test_what_is_referred_to_stays_though_a_dropped_checkpoint_named_it_and_it_is_old():
    file_id, file = _staged(begun=5)
    assert plan_collect(_facts(file, named=file_id)).files == (file,)
    assert plan_collect(_facts(file, named=file_id, kept=file_id, condemned=6)).files == ()


def test_an_old_file_that_no_commit_named_is_condemned_before_it_goes():
    _, file = _staged(begun=5)
    plan = plan_collect(_facts(file))
    assert (plan.files, plan.condemn) == ((), 6)
    plan = plan_collect(_facts(file, condemned=6))
    assert (plan.files, plan.condemn) == ((file,), 0)


def test_a_young_file_that_no_commit_named_is_left_alone():
    _, file = _staged(begun=5, modified=1001)
    plan = plan_collect(_facts(file))
    assert (plan.files, plan.condemn) == ((), 0)


def test_the_log_is_needed_from_the_oldest_retained_checkpoint_on():
    assert plan_collect(_facts()).first_lsn == 31
