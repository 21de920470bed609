"""Members whose group, or log, moves on while they are in the middle of something.

Finds: a plan that overrules one of another thread, a change of the group that is never looked at,
a partition that is read by who gave it away, one that nobody gets since it was trimmed just then,
and a transaction without the offsets of what it was made of, or with offsets of before another
member read on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.format.group_entries import Interest
from kmq_storage.groups.membership import MemberSettings, SharedMembership
from tests.support.members import without_watch


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topic `t` of six partitions with ten records each, and an empty one."""
    _fill(store)
    return store


def _fill(store: kmq.Store) -> None:
    store.create_topic("t", partitions=6)
    store.create_topic("other")
    with store.producer() as producer:
        for partition in range(6):
            producer.send_batch("t", [b"%d" % n for n in range(10)], partition=partition)


def _owned(*consumers: kmq.Consumer) -> list[list[int]]:
    for _ in range(3):
        for consumer in consumers:
            consumer.assignment()
    return [consumer.assignment().get("t", []) for consumer in consumers]


def _first(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, what: Callable[[], Any]) -> None:
    """Before the next call of this method something happens."""
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        what()
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


def test_a_plan_overrules_none_that_another_thread_of_the_handle_heard_of(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    settings = [MemberSettings(name, False, "sticky", 45.0) for name in "abc"]
    one, two, three = (SharedMembership(shop.log, "g", each) for each in settings)
    three.enter(Interest(("other",)))
    _first(monkeypatch, one, "_gone", lambda: two.enter(Interest(("t",))))
    one.enter(Interest(("t",)))
    plan = shop.log.refresh().group("g").plan
    assert set(plan.members) == {one.epoch, two.epoch, three.epoch}
    assert len(plan.owned_by(two.epoch)) == 6, "it keeps them until it releases them"
    one.leave()
    two.leave()
    three.leave()


def test_a_member_that_joins_during_a_callback_gets_its_share(shop: kmq.Store):
    third = shop.consumer("g")
    with without_watch():
        first, second = shop.consumer("g"), shop.consumer("g")
    joined: list[object] = []

    def revoked(_: object) -> None:
        if not joined:
            joined.append(third.subscribe(["t"]))

    first.subscribe(["t"], on_revoke=revoked)
    second.subscribe(["t"])
    assert [len(each) for each in _owned(first, second, third)] == [2, 2, 2]


def test_who_gave_a_partition_away_does_not_read_it_by_what_it_knew_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with kmq.open(tmp_path / "s", create=True) as store, kmq.open(tmp_path / "s") as elsewhere:
        _fill(store)
        told: list[list[int]] = []
        with without_watch():
            first, second = store.consumer("g"), elsewhere.consumer("g", topics=["t"])
            second.close()
            first.subscribe(
                ["t"],
                on_assign=lambda partitions: told.append(partitions["t"]),
                on_revoke=lambda _: second.close(),
            )
            second = elsewhere.consumer("g", topics=["t"])
            place = first._in_group().place
            _first(monkeypatch, place, "release", lambda: elsewhere.consumer("g", topics=["t"]))
            assert first.assignment() == {"t": [0, 1, 2]}
        assert told == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("auto_commit", [False, True], ids=["by hand", "by itself"])
def test_a_commit_leaves_out_what_is_trimmed_just_then(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch, auto_commit: bool
):
    with shop.consumer("g", topics=["t"], auto_commit=auto_commit) as consumer:
        assert len(consumer.consume(60, timeout=0)) == 60
        consumer.seek("t", 0, 5)
        _first(monkeypatch, consumer._in_group(), "commit", lambda: shop.trim("t", {0: 8}))
        if auto_commit:
            consumer.poll()
        else:
            consumer.commit()
        committed = shop.describe_group("g").committed["t"]
        assert committed.pop(0, 10) == 10, "as it was before"
        assert committed == dict.fromkeys(range(1, 6), 10)


def test_an_offset_outside_of_the_log_is_still_refused(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer, pytest.raises(kmq.OffsetOutOfRangeError):
        consumer.commit({"t": {0: 11}})


def test_a_partition_moves_though_it_is_trimmed_just_then(
    shop: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    first = shop.consumer("g", topics=["t"], auto_commit=True)
    assert len(first.consume(60, timeout=0)) == 60
    first.seek("t", 5, 3)
    second = shop.consumer("g", topics=["t"])
    _first(monkeypatch, first._in_group().place, "release", lambda: shop.trim("t", {5: 8}))
    assert _owned(first, second) == [[0, 1, 2], [3, 4, 5]]


def test_a_transaction_learns_that_records_come_again_after_another_subscription(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer, shop.producer(name="p") as producer:
        assert len(consumer.consume(5, timeout=0)) == 5
        consumer.subscribe(["other"])
        with pytest.raises(kmq.TransactionAbortedError), producer.transaction() as tx:
            tx.send("other", b"made of them")
            tx.commit_offsets(consumer)
        assert shop.offsets("other") == {0: (0, 0)}


def test_a_transaction_with_offsets_of_a_partition_that_went_and_came_back_is_aborted(
    store: kmq.Store,
):
    store.create_topic("in", partitions=2)
    store.create_topic("out")
    with store.producer() as one, store.producer() as two, _reader(store) as consumer:
        one.send_batch("in", [b"1", b"2", b"3"], partition=1).result()
        with pytest.raises(kmq.TransactionAbortedError) as aborted, one.transaction() as tx:
            _send_on(tx, consumer, 2)
            with _reader(store) as other:
                for _ in range(3):  # records ahead of the commit; the partition goes with them
                    consumer.consume(9, timeout=0)
                with two.transaction() as its:
                    _send_on(its, other, 9)
            consumer.consume(9, timeout=0)
            assert consumer.assignment() == {"in": [0, 1]}
    assert isinstance(aborted.value.__cause__, kmq.FencedError)
    assert store.describe_group("g").committed["in"][1] == 3
    assert store.read("out").read_all()["value"].to_pylist() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_transaction_whose_offsets_were_refused_is_not_committed_by_who_goes_on(
    shop: kmq.Store, by_hand: bool
):
    with shop.consumer("g", topics=["t"]) as consumer, shop.producer() as producer:
        assert len(consumer.consume(5, timeout=0)) == 5
        position = consumer.position()
        consumer.subscribe(["other"])
        with pytest.raises(kmq.TransactionAbortedError), producer.transaction() as tx:
            tx.send("other", b"made of them")
            with pytest.raises(kmq.KmqError, match="gets them again"):
                tx.send_offsets(position, consumer) if by_hand else tx.commit_offsets(consumer)
        assert shop.offsets("other") == {0: (0, 0)}


def test_a_transaction_is_committed_though_a_partition_went_of_which_it_has_nothing(
    store: kmq.Store,
):
    store.create_topic("in", partitions=2)
    store.create_topic("out")
    with store.producer() as producer, _reader(store) as consumer:
        producer.send_batch("in", [b"1", b"2"], partition=0).result()
        consumer.commit()
        with producer.transaction() as tx:
            _send_on(tx, consumer, 2)
            with _reader(store):
                consumer.lag()
                assert consumer.assignment() == {"in": [0]}
        assert store.describe_group("g").committed["in"] == {0: 2, 1: 0}


def _reader(store: kmq.Store) -> kmq.Consumer:
    return store.consumer("g", topics=["in"])


def _send_on(transaction: kmq.Transaction, consumer: kmq.Consumer, most: int) -> None:
    for record in consumer.consume(most, timeout=0):
        transaction.send("out", record.value)
    transaction.commit_offsets(consumer)
