"""The members of a group in processes of their own: killed, stopped and continued.

Finds: partitions that nobody takes over from a dead member, others that stop meanwhile, records
that are lost, or come twice though they were committed, and a stopped member that commits.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.format.group_entries import GroupPlan
from tests.e2e.group_workers import TOPIC, Member, Members

pytestmark = pytest.mark.e2e

MEMBERS, PARTITIONS = 10, 100


class Shop:
    """A store whose partitions get a record each, again and again."""

    def __init__(self, url: str, stack: ExitStack, partitions: int) -> None:
        self.store = stack.enter_context(kmq.open(url, durability="os"))
        self.store.create_topic(TOPIC, partitions=partitions)
        self._producer = stack.enter_context(self.store.producer(linger=0.001))
        self.partitions = partitions
        self.rounds = 0

    def send(self) -> None:
        for partition in range(self.partitions):
            self._producer.send(TOPIC, b"%d" % self.rounds, partition=partition)
        self._producer.flush()
        self.rounds += 1

    @property
    def records(self) -> set[tuple[int, int]]:
        return {(p, o) for p in range(self.partitions) for o in range(self.rounds)}


def _settle(shop: Shop, members: Members) -> None:
    """Until all is planned, handed over and read."""
    shop.send()
    members.hear(lambda: _has_all(members, shop))
    plan = shop.store.log.refresh().groups["g"].plan
    while plan.targets or len(plan.members) < len(members.all) or not _is_even(plan):
        shop.send()
        members.hear(lambda: _has_all(members, shop))
        plan = shop.store.log.refresh().groups["g"].plan


def _is_even(plan: GroupPlan) -> bool:
    """Whether who joined last has its share: a member is in the plan before it is planned for."""
    loads = [len(list(plan.owned_by(epoch))) for epoch in plan.members]
    return max(loads) - min(loads) <= 1


def _has_all(members: Members, shop: Shop) -> bool:
    return set(members.reads()) >= shop.records


def _check_doubles(members: Members, former: Member) -> None:
    """What came twice was read by the former owner, who could not commit it any more, first."""
    for record, reads in members.reads().items():
        assert len(reads) <= 2, record
        assert len(reads) == 1 or min(reads, key=lambda read: read[0])[1] is former, record


def test_of_ten_members_one_is_killed_and_the_others_read_on(tmp_path: Path):
    with ExitStack() as stack:
        shop = Shop(str(tmp_path / "store"), stack, PARTITIONS)
        members = Members(stack, str(tmp_path / "store"), MEMBERS, session_timeout=45.0)
        _settle(shop, members)
        loads = [len(each.assignment[TOPIC]) for each in shop.store.describe_group("g").members]
        assert sorted(loads) == [PARTITIONS // MEMBERS] * MEMBERS
        victim = members.all[3]
        epoch = _epoch(victim, shop)
        owned = {number for _, number in _plan(shop).owned_by(epoch)}
        killed = victim.signal(signal.SIGKILL)
        offset = shop.rounds
        shop.send()
        members.hear(lambda: _has_all(members, shop))
        taken_over = [members.reads()[partition, offset][-1][0] for partition in owned]
        print(f"\n{len(owned)} partitions are read again {max(taken_over) - killed:.3f} s later")
        assert len(_plan(shop).members) == MEMBERS - 1
        _check_doubles(members, victim)
        assert all("lost" not in each.told for each in members.all)


def test_a_member_that_was_stopped_beyond_its_timeout_is_replaced_and_fenced(tmp_path: Path):
    with ExitStack() as stack:
        shop = Shop(str(tmp_path / "store"), stack, 12)
        members = Members(stack, str(tmp_path / "store"), 3, session_timeout=1.0)
        _settle(shop, members)
        stopped = members.all[1]
        stopped.pipe.send("stopping")
        while "stopping" not in stopped.told:  # on a busy machine it may have lost all it had
            shop.send()
            members.hear(lambda: "stopping" in stopped.told or _has_all(members, shop))
        at = time.monotonic()
        members.hear(lambda: len(_plan(shop).members) == 2)
        print(f"\na stopped member was replaced {time.monotonic() - at:.3f} s later")
        shop.send()
        members.hear(lambda: _has_all(members, shop))
        before = shop.store.describe_group("g").committed
        stopped.told.clear()
        stopped.signal(signal.SIGCONT)
        members.hear(lambda: {"lost", "fenced"} <= {*stopped.told})
        after = shop.store.describe_group("g").committed
        assert all(after[TOPIC][n] >= offset for n, offset in before[TOPIC].items())
        _settle(shop, members)  # it joined again
        assert len(_plan(shop).members) == 3


def _plan(shop: Shop) -> GroupPlan:
    return shop.store.log.refresh().groups["g"].plan


def _epoch(member: Member, shop: Shop) -> int:
    (epoch,) = (
        epoch
        for epoch, each in _plan(shop).members.items()
        if each.client.endswith(f"-{member.process.pid}")
    )
    return epoch
