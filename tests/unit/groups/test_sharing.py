"""Consumers that share a group in one process: who reads what, when it moves, and who is told.

Finds: partitions that two or none read, records lost or doubled at a hand-over, callbacks out of
order, a commit of who lost its partitions, and members that can't be together.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.consuming.uncommitted import Giving
from tests.support.members import without_watch

PARTITIONS = 6
Told = list[tuple[str, str, list[int]]]


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topic `t` with the values 0 to 9 in each of its partitions."""
    store.create_topic("t", partitions=PARTITIONS)
    _fill(store, "t", range(PARTITIONS))
    return store


def _fill(store: kmq.Store, topic: str, partitions: Any, first: int = 0) -> None:
    with store.producer() as producer:
        for partition in partitions:
            values = [b"%d" % number for number in range(first, first + 10)]
            producer.send_batch(topic, values, partition=partition)


def _owned(*consumers: kmq.Consumer) -> list[list[int]]:
    """What each reads, once each has had its calls: whoever gives first, then who gets."""
    for _ in range(3):
        for consumer in consumers:
            consumer.assignment()
    return [consumer.assignment().get("t", []) for consumer in consumers]


def _read(*consumers: kmq.Consumer) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for _ in range(3):
        for consumer in consumers:
            found.update((r.partition, r.offset) for r in consumer.consume(timeout=0))
    return found


def _look(consumer: kmq.Consumer, until: Callable[[], Any]) -> None:
    """Have a consumer's watch look until something is so; each look may be the one that finds."""
    for _ in range(200):
        if until():
            return
        consumer._watch.look(consumer._taking)  # type: ignore[union-attr]
        time.sleep(0.01)
    raise AssertionError("nothing happened")


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_members_share_the_partitions_and_read_each_record_once(shop: kmq.Store, assignor: str):
    members = [shop.consumer("g", topics=["t"], assignor=assignor) for _ in range(3)]
    owned = _owned(*members)
    assert [len(numbers) for numbers in owned] == [2, 2, 2]
    assert sorted(chain(*owned)) == list(range(PARTITIONS))
    found = _read(*members)
    assert set(found.values()) == {1}
    assert len(found) == 60


def test_groups_read_everything_each_and_know_nothing_of_each_other(shop: kmq.Store):
    with (
        shop.consumer("g", topics=["t"]) as one,
        shop.consumer("g", topics=["t"]) as two,
        shop.consumer("other", topics=["t"]) as alone,
    ):
        assert len(everything := _read(alone)) == PARTITIONS * 10
        alone.commit()
        _owned(one, two)
        assert _read(one, two) == everything
        assert shop.describe_group("g").committed == {}


def test_more_members_than_partitions_wait_and_take_over(shop: kmq.Store):
    shop.create_topic("one")
    first, second = (shop.consumer("g", topics=["one"]) for _ in range(2))
    assert (first.assignment(), second.assignment()) == ({"one": [0]}, {})
    first.close()
    assert second.assignment() == {"one": [0]}


def test_a_partition_moves_only_after_its_owner_has_committed(shop: kmq.Store):
    first = shop.consumer("g", topics=["t"], auto_commit=True)
    assert len(first.consume(35, timeout=0)) == 35
    second = shop.consumer("g", topics=["t"], auto_commit=True)
    assert second.assignment() == {}  # nothing was released yet
    assert second.consume(timeout=0) == []
    assert _owned(first, second) == [[0, 1, 2], [3, 4, 5]]
    found = _read(first, second)
    assert set(found.values()) == {1}
    assert len(found) == 60 - 35


def test_without_auto_commit_what_was_not_committed_comes_again(shop: kmq.Store):
    first = shop.consumer("g", topics=["t"])
    assert len(first.consume(60, timeout=0)) == 60
    second = shop.consumer("g", topics=["t"])
    assert first.lag()["t"] == dict.fromkeys(range(PARTITIONS), 0)  # it may still commit them
    assert first.consume(timeout=0) == []  # and is done with them
    assert set(_read(second)) == {(p, o) for p in (3, 4, 5) for o in range(10)}


def test_callbacks_come_in_order_and_revoked_partitions_may_still_be_committed(shop: kmq.Store):
    told: Told = []

    def member(name: str) -> kmq.Consumer:
        def tell(what: str) -> Callable[[dict[str, list[int]]], None]:
            def told_of(partitions: dict[str, list[int]]) -> None:
                told.append((name, what, partitions["t"]))
                if what == "revoke":
                    consumer.commit()

            return told_of

        consumer = shop.consumer("g")
        calls = {f"on_{what}": tell(what) for what in ("assign", "revoke", "lost")}
        consumer.subscribe(["t"], **calls)  # type: ignore[arg-type]
        return consumer

    first = member("first")
    first.consume(60, timeout=0)
    second = member("second")
    _owned(first, second)
    assert second.consume(timeout=0) == []  # all was committed when it was revoked
    first.close()
    assert _owned(second) == [[0, 1, 2, 3, 4, 5]]
    assert told == [
        ("first", "assign", [0, 1, 2, 3, 4, 5]),
        ("first", "revoke", [3, 4, 5]),
        ("second", "assign", [3, 4, 5]),
        ("first", "revoke", [0, 1, 2]),
        ("second", "assign", [0, 1, 2]),
    ]


def test_all_other_partitions_are_read_on_while_some_move(shop: kmq.Store):
    first = shop.consumer("g", topics=["t"])
    first.consume(1, timeout=0)
    second = shop.consumer("g", topics=["t"])
    third = shop.consumer("g", topics=["t"])
    assert third.assignment() == {}
    _owned(first)
    _fill(shop, "t", range(PARTITIONS), first=10)
    assert {r.partition for r in first.consume(1_000, timeout=0)} == {0, 1}
    assert sorted(chain(*_owned(first, second, third))) == list(range(PARTITIONS))


def test_records_in_hand_are_not_handed_out_after_their_partition_moved(shop: kmq.Store):
    with without_watch():
        first = shop.consumer("g", topics=["t"], auto_commit=True, assignor="sticky")
        second = shop.consumer("g", topics=["t"], auto_commit=True, assignor="sticky")
    _owned(first, second)
    record = first.poll()
    assert record is not None
    for _ in range(2):
        third = shop.consumer("g", topics=["t"], auto_commit=True, assignor="sticky")
        _look(first, lambda: first._assignment.is_called_in)
        found = _read(first, second, third)
        assert max(found.values()) == 1
        assert (record.partition, record.offset) not in found
        _fill(shop, "t", range(PARTITIONS), first=10)


def test_a_call_that_has_records_of_a_partition_releases_it_only_with_the_next_one(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """The second member joins when the call has all records and looks for more."""
    first = shop.consumer("g", topics=["t"], auto_commit=True)
    others: list[kmq.Consumer] = []
    refresh = first._assignment.refresh

    def join_first(*, giving: Giving = Giving.IDLE) -> Any:
        if giving is Giving.NONE and not others:
            others.append(shop.consumer("g", topics=["t"], auto_commit=True))
        return refresh(giving=giving)

    monkeypatch.setattr(first._assignment, "refresh", join_first)
    assert len(first.consume(1_000, timeout=0)) == 60
    assert shop.describe_group("g").members[1].assignment == {}
    assert _owned(first, *others) == [[0, 1, 2], [3, 4, 5]]
    assert _read(first, *others) == {}


def test_a_member_that_another_one_planned_away_is_fenced_and_told(shop: kmq.Store):
    lost: list[Any] = []
    with without_watch():
        first = shop.consumer("g")
        first.subscribe(["t"], on_lost=lost.append)
        second = shop.consumer("g", topics=["t"])
    _owned(first, second)
    first.consume(5, timeout=0)
    second._member.place._plan_away({first._member.place.epoch})  # type: ignore[union-attr]
    before = shop.log.refresh().lsn
    for offsets in (None, {"t": {0: 1}}):
        with pytest.raises(kmq.FencedError, match="lost"):
            first.commit(offsets)
    assert shop.log.refresh().lsn == before
    assert second.assignment() == {"t": [0, 1, 2, 3, 4, 5]}
    first.consume(timeout=0)
    assert lost == [{"t": [0, 1, 2]}]
    assert sorted(chain(*_owned(first, second))) == list(range(PARTITIONS))  # it joined again


def test_a_commit_for_another_members_partition_is_refused(shop: kmq.Store):
    first, second = (shop.consumer("g", topics=["t"]) for _ in range(2))
    _owned(first, second)
    first.commit({"t": {0: 3}})
    with pytest.raises(kmq.FencedError):
        second.commit({"t": {0: 7}})
    assert shop.describe_group("g").committed == {"t": {0: 3}}


def test_added_partitions_and_new_topics_are_shared(shop: kmq.Store):
    first, second = (shop.consumer("g", pattern="^t") for _ in range(2))
    _owned(first, second)
    shop.add_partitions("t", 8)
    assert sorted(map(len, _owned(first, second))) == [4, 4]
    shop.create_topic("tea", partitions=2)
    _owned(second, first)
    assert [each.assignment()["tea"] for each in (first, second)] == [[0], [1]]
    shop.delete_topic("tea")
    assert [set(each.assignment()) for each in (first, second)] == [{"t"}, {"t"}]


def test_members_may_read_different_topics(shop: kmq.Store):
    shop.create_topic("u", partitions=2)
    first, second = shop.consumer("g", topics=["t"]), shop.consumer("g", topics=["t", "u"])
    _owned(first, second)
    assert first.assignment() == {"t": [0, 1, 2]}
    assert second.assignment() == {"t": [3, 4, 5], "u": [0, 1]}
    second.subscribe(["u"])
    assert _owned(first, second) == [[0, 1, 2, 3, 4, 5], []]


def test_partitions_chosen_by_hand_are_their_choosers_and_the_others_share_the_rest(
    shop: kmq.Store,
):
    first, second, third = (shop.consumer("g") for _ in range(3))
    first.subscribe(["t"])
    second.assign({"t": [0, 5]})
    third.subscribe(["t"])
    assert _owned(first, second, third) == [[1, 2], [0, 5], [3, 4]]
    with pytest.raises(kmq.IllegalStateError, match="t-5 was chosen by another member"):
        third.assign({"t": [4, 5]})
    assert _owned(first, second, third) == [[1, 2], [0, 5], [3, 4]]


def test_members_assign_alike(shop: kmq.Store):
    refused = pytest.raises(kmq.IllegalStateError, match="assign by 'range'")
    with shop.consumer("g", topics=["t"], assignor="range"), refused:
        shop.consumer("g", topics=["t"], assignor="sticky")


def test_a_static_name_gets_its_partitions_back_and_nobody_else_meanwhile(shop: kmq.Store):
    a = shop.consumer("g", topics=["t"], name="a", auto_commit=True)
    b = shop.consumer("g", topics=["t"], name="b", auto_commit=True)
    assert _owned(a, b) == [[0, 1, 2], [3, 4, 5]]
    a.close()
    assert _owned(b) == [[3, 4, 5]]
    a = shop.consumer("g", name="a", auto_commit=True)
    assert (a.assignment(), a.lag()) == ({}, {})  # it waits until it is said what to read
    a.subscribe(["t"], on_assign=print)
    assert a.assignment() == {"t": [0, 1, 2]}  # at once: nothing moved
    assert _owned(b) == [[3, 4, 5]]


def test_a_static_name_that_stays_away_is_planned_away_after_its_session_timeout(shop: kmq.Store):
    a = shop.consumer("g", topics=["t"], name="a", session_timeout=0.2)
    b = shop.consumer("g", topics=["t"], name="b")
    _owned(a, b)
    a.close()
    _look(b, lambda: len(b.assignment()["t"]) == PARTITIONS)


def test_a_newer_member_of_a_static_name_fences_the_older(shop: kmq.Store):
    old = shop.consumer("g", topics=["t"], name="a")
    assert len(old.consume(10, timeout=0)) == 10
    new = shop.consumer("g", topics=["t"], name="a")
    assert new.assignment() == {"t": [0, 1, 2, 3, 4, 5]}
    with pytest.raises(kmq.FencedError):
        old.commit()
    for _ in range(2):
        with pytest.raises(kmq.FencedError, match="member a of group g was opened again"):
            old.consume(timeout=0)
    assert [each.name for each in shop.describe_group("g").members] == ["a"]
    old.close()
    assert new.assignment() == {"t": [0, 1, 2, 3, 4, 5]}


def test_one_that_makes_no_calls_for_its_interval_is_replaced_and_comes_back(shop: kmq.Store):
    with without_watch():
        slow = shop.consumer("g", topics=["t"], max_poll_interval=0.05)
    slow.consume(5, timeout=0)
    quick = shop.consumer("g", topics=["t"])
    _look(slow, lambda: len(quick.assignment().get("t", [])) == PARTITIONS)
    with pytest.raises(kmq.FencedError):
        slow.commit()
    assert sorted(chain(*_owned(slow, quick))) == list(range(PARTITIONS))


def test_one_that_is_alone_keeps_its_partitions_however_slow_it_is(shop: kmq.Store):
    slow = shop.consumer("g", topics=["t"], max_poll_interval=0.01)
    slow.consume(5, timeout=0)
    for _ in range(5):
        time.sleep(0.02)
        slow._watch.look(slow._taking)  # type: ignore[union-attr]
    slow.commit()
    assert shop.describe_group("g").committed["t"] != {}


def test_pauses_and_positions_stay_where_partitions_stay(shop: kmq.Store):
    first = shop.consumer("g", topics=["t"])
    first.pause({"t": [1]})
    first.seek("t", 2, 7)
    second = shop.consumer("g", topics=["t"])
    assert _owned(first, second) == [[0, 1, 2], [3, 4, 5]]
    assert first.position() == {"t": {0: 0, 1: 0, 2: 7}}
    assert {r.partition for r in first.consume(timeout=0)} == {0, 2}


def test_members_stand_in_the_description_of_the_group(shop: kmq.Store):
    members = [shop.consumer("g", topics=["t"], name=name) for name in ("a", "b")]
    _owned(*members)
    info = shop.describe_group("g")
    assert [(each.name, each.assignment) for each in info.members] == [
        ("a", {"t": [0, 1, 2]}),
        ("b", {"t": [3, 4, 5]}),
    ]
    assert info.members[0].epoch < info.members[1].epoch <= info.generation
    assert info.members[0].joined <= info.members[1].joined
    for call in (
        lambda: shop.set_group_offsets("g", "earliest"),
        lambda: shop.delete_group("g"),
    ):
        with pytest.raises(kmq.IllegalStateError, match=r"live member \(a of .*; b of "):
            call()
    for each in members:
        each.close()
    assert shop.describe_group("g").members == []
    shop.delete_group("g")


def test_a_group_survives_a_checkpoint(shop: kmq.Store):
    first, second = (shop.consumer("g", topics=["t"]) for _ in range(2))
    _owned(first, second)
    shop.seal()
    shop.checkpoint()
    with kmq.open(shop.log.files.url, create=False) as again:
        assert again.log.refresh().groups["g"] == shop.log.refresh().groups["g"]
        assert len(again.describe_group("g").members) == 2


def test_a_member_leaves_no_lock_behind(tmp_path: Any):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=PARTITIONS)
        for _ in range(3):
            with store.consumer("g", topics=["t"]), store.consumer("g", topics=["t"]):
                pass
    assert list((tmp_path / "store" / "locks").glob("*.member")) == []


def test_a_query_and_consumers_keep_out_of_each_others_group(shop: kmq.Store):
    from kmq_storage.groups.exclusive import ExclusiveMembership

    alone = ExclusiveMembership(shop.log, "g", "query", told="a query")
    with pytest.raises(kmq.IllegalStateError, match="already, which reads it alone"):
        shop.consumer("g", topics=["t"])
    alone.leave()
    with shop.consumer("g", topics=["t"], name="a") as consumer:
        assert len(consumer.consume(10, timeout=0)) == 10
        with pytest.raises(kmq.IllegalStateError, match="group g has a live member already"):
            ExclusiveMembership(shop.log, "g", "query", told="a query")
        consumer.commit()
    alone = ExclusiveMembership(shop.log, "g", "query", told="a query")
    assert shop.describe_group("g").members[0].name == "query"
    alone.leave()
