"""The golden store of groups stays readable, and what reads and writes it goes on from there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import kmq_spark as kmq
from tests.data.make_golden_groups import AUDIT, JOINED, ORDERS, A, B, C, make
from tests.support.golden import DATA, copied, state_of

GOLDEN = DATA / "format-1-groups"
folder = copied(GOLDEN)


def test_the_golden_groups_come_back_with_owners_targets_and_members(folder: Path):
    groups = state_of(folder).groups
    plan = groups["shared"].plan
    assert groups["shared"].generation == 3
    assert {e: replace(each, joined=0) for e, each in plan.members.items()} == {1: A, 2: B, 3: C}
    assert plan.members[1].joined == JOINED < plan.members[2].joined == plan.members[3].joined
    assert plan.owners == {
        **{(ORDERS, n): 1 for n in (0, 2, 4)},
        **{(ORDERS, n): 2 for n in (1, 3)},
        (AUDIT, 0): 3,
        (AUDIT, 1): 2,
        (AUDIT, 2): 3,
    }
    assert plan.targets == {(ORDERS, 4): 2}
    assert groups["shared"].offsets == {ORDERS: {0: 0, 3: 0}}
    assert (groups["alone"].member, set(groups["alone"].plan.members)) == ("", {1})


def test_the_log_alone_says_the_same_as_the_checkpoint_and_the_rest(folder: Path):
    with_checkpoint = state_of(folder).groups
    shutil.rmtree(folder / "checkpoints")
    assert state_of(folder).groups == with_checkpoint


def test_a_consumer_joins_the_golden_group_whose_members_are_long_gone(folder: Path):
    with (
        kmq.open(folder, create=False, maintenance=False) as store,
        store.consumer("shared", topics=["orders"], assignor="sticky") as consumer,
    ):
        assert consumer.assignment() == {"orders": [0, 1, 2, 3, 4]}
        assert len(store.describe_group("shared").members) == 1


def test_the_maker_makes_the_same_log(tmp_path: Path):
    make(tmp_path / "store")
    assert state_of(tmp_path / "store").groups == state_of(GOLDEN).groups
