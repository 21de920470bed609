"""A consumer as a member of its group: offsets that survive it, and its successors.

Finds: commits beyond what was handed out, auto-commits after an exception, and a former member that
still commits.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.tables.state_rows import group_rows
from tests.support.members import without_watch


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topic `t` with ten records."""
    store.create_topic("t")
    with store.producer() as producer:
        producer.send_batch("t", [b"%d" % number for number in range(10)])
    return store


def _committed(store: kmq.Store) -> int | None:
    return store.describe_group("g").committed.get("t", {}).get(0)


class _Unsearched(list[int]):
    """Partitions in which nothing is looked for one by one."""

    def __contains__(self, number: object) -> bool:
        raise AssertionError(f"a pass over all partitions for partition {number}")


def test_committed_offsets_are_found_without_a_pass_over_all_partitions_for_each(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer:
        consumer.consume(4)
        consumer.commit()
        member = consumer._in_group()
        assert member.committed(shop.log.refresh(), {"t": _Unsearched([0, 1])}) == {"t": {0: 4}}


def test_a_group_goes_on_where_it_committed(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer:
        assert len(consumer.consume(4)) == 4
        assert consumer.committed() == {}
        consumer.commit()
        assert consumer.committed() == {"t": {0: 4}}
        consumer.consume(3)
    with shop.consumer("g", topics=["t"]) as consumer:
        assert consumer.position() == {"t": {0: 4}}
        assert consumer.poll().value == b"4"  # type: ignore[union-attr]


def test_a_commit_is_of_what_was_handed_out_not_of_what_was_fetched(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer:
        for expected in range(1, 11):
            consumer.poll()
            consumer.commit()
            assert _committed(shop) == expected


def test_given_offsets_are_committed_as_they_are(shop: kmq.Store):
    shop.create_topic("other")
    with shop.consumer("g", topics=["t"]) as consumer:
        consumer.commit({"t": {0: 10}})
        consumer.commit({"t": {0: 2}, "other": {0: 0}})
        assert consumer.committed() == {"t": {0: 2}}
        assert consumer.position() == {"t": {0: 0}}
        for wrong in (11, -1):
            with pytest.raises(kmq.OffsetOutOfRangeError):
                consumer.commit({"t": {0: wrong}})
        assert shop.describe_group("g").committed == {"t": {0: 2}, "other": {0: 0}}


def test_a_consumer_without_topics_commits_given_offsets_of_what_nobody_else_owns(shop: kmq.Store):
    for offset in (3, 4):
        with shop.consumer("g") as consumer:
            consumer.commit({"t": {0: offset}})
        assert shop.describe_group("g").committed == {"t": {0: offset}}
    refused = pytest.raises(kmq.FencedError, match="another one")
    with shop.consumer("g", topics=["t"]), shop.consumer("g") as other, refused:
        other.commit({"t": {0: 5}})


def test_a_commit_of_the_same_place_twice_is_no_error(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer:
        consumer.consume(3)
        consumer.commit()
        consumer.commit()
        assert _committed(shop) == 3


def test_each_member_has_a_generation_of_its_own(shop: kmq.Store):
    for generation in (1, 2, 3):
        with shop.consumer("g", topics=["t"], name=f"m{generation}") as consumer:
            info = shop.describe_group("g")
            assert info.generation == generation
            assert [member.name for member in info.members] == [f"m{generation}"]
            assert [dict(member.assignment) for member in info.members] == [{"t": [0]}]
            assert info.members[0].joined.tzinfo is not None
            consumer.poll()
    assert shop.describe_group("g").members == []


def test_a_member_of_an_earlier_generation_is_fenced(shop: kmq.Store):
    from kmq_storage.format.entries import GroupEntry
    from kmq_storage.log.binding.binding import Unit

    consumer = shop.consumer("g", topics=["t"])
    consumer.consume(5)
    shop.log.commit([Unit((GroupEntry("g", 2, "newer", "elsewhere", {}),))])
    before = shop.log.refresh().lsn
    with pytest.raises(kmq.FencedError, match="generation"):
        consumer.commit()
    with pytest.raises(kmq.FencedError):
        consumer.commit({"t": {0: 1}})
    assert shop.log.refresh().lsn == before
    consumer.close()


@pytest.mark.parametrize("look", ["assignment", "committed", "lag", "position"])
def test_a_member_that_was_replaced_is_told_at_its_commit_though_another_call_saw_it_first(
    shop: kmq.Store, look: str
):
    consumer = shop.consumer("g", max_poll_interval=0.01)
    lost: list[object] = []
    consumer.subscribe(["t"], on_lost=lost.append)
    assert len(consumer.consume(2)) == 2
    other = shop.consumer("g", topics=["t"])
    while not other.assignment():
        time.sleep(0.01)
    getattr(consumer, look)()
    assert lost == [{"t": [0]}]
    with pytest.raises(kmq.FencedError, match=r"\{'t': \[0\]\} were handed out"):
        consumer.commit()
    consumer.commit()  # told once; nothing was handed out since
    assert shop.describe_group("g").committed == {}


@pytest.mark.parametrize("call", ["consume", "consume_arrow"])
def test_a_member_whose_place_was_taken_while_a_call_had_records_is_told_at_its_commit(
    shop: kmq.Store, call: str
):
    with without_watch():
        older = shop.consumer("g", topics=["t"], name="worker")
    newer = shop.consumer("g", topics=["t"], name="worker")
    assert len(getattr(older, call)()) == 10  # it looks at the group when it has them
    with pytest.raises(kmq.FencedError, match=r"\{'t': \[0\]\} were handed out"):
        older.commit()
    assert shop.describe_group("g").committed == {}
    for again in (older.consume, older.commit, older.commit):
        with pytest.raises(kmq.FencedError, match="opened again"):
            again()
    assert len(newer.consume()) == 10


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_who_ends_after_its_place_was_taken_is_told_that_it_lost_its_partitions(
    shop: kmq.Store, end: str
):
    told: list[Any] = []
    older = shop.consumer("g", name="worker")
    older.subscribe(
        ["t"],
        on_revoke=lambda partitions: told.append(("revoke", partitions)),
        on_lost=lambda partitions: told.append(("lost", partitions)),
    )
    with shop.consumer("g", topics=["t"], name="worker"):
        with suppress(kmq.FencedError):  # whose name another one has
            getattr(older, end)()
        assert told == [("lost", {"t": [0]})]
    older.close()
    assert told == [("lost", {"t": [0]})]


def test_a_commit_of_what_is_another_members_names_topic_and_partition(shop: kmq.Store):
    shop.add_partitions("t", 2)
    with shop.consumer("g", topics=["t"]) as one, shop.consumer("g", topics=["t"]) as other:
        assert (one.assignment(), other.assignment()) == ({"t": [0]}, {"t": [1]})
        with pytest.raises(kmq.FencedError, match="lost t-1 to another one"):
            one.commit({"t": {1: 0}})


def test_auto_commit_commits_at_the_next_call_what_was_handed_out(shop: kmq.Store):
    with shop.consumer("g", topics=["t"], auto_commit=True) as consumer:
        consumer.poll()
        assert _committed(shop) in (None, 0)
        consumer.poll()
        assert _committed(shop) == 1
        consumer.consume(5)
        assert _committed(shop) == 2
        consumer.consume_arrow(1)
        assert _committed(shop) == 7
    assert _committed(shop) == 8


def test_auto_commit_commits_at_a_clean_close(shop: kmq.Store):
    consumer = shop.consumer("g", topics=["t"], auto_commit=True)
    consumer.consume(6)
    consumer.close()
    assert _committed(shop) == 6


def test_auto_commit_commits_nothing_after_an_exception(shop: kmq.Store):
    def process() -> None:
        with shop.consumer("g", topics=["t"], auto_commit=True) as consumer:
            consumer.consume(3)
            consumer.consume(4)
            raise RuntimeError("processing failed")

    with pytest.raises(RuntimeError, match="processing failed"):
        process()
    assert _committed(shop) == 3
    with shop.consumer("g", topics=["t"]) as consumer:
        assert consumer.poll().value == b"3"  # type: ignore[union-attr]


def test_auto_commit_commits_nothing_when_the_store_is_left_by_an_exception(store_url: str):
    def process() -> None:
        with kmq.open(store_url) as store:
            store.create_topic("t")
            with store.producer() as producer:
                producer.send_batch("t", [b"v"] * 5).result(10)
            consumer = store.consumer("g", topics=["t"], auto_commit=True)
            consumer.consume(2)
            consumer.consume(2)
            raise RuntimeError("processing failed")

    with pytest.raises(RuntimeError, match="processing failed"):
        process()
    with kmq.open(store_url) as store:
        assert _committed(store) == 2


def test_auto_commit_in_a_loop_keeps_the_record_that_failed(shop: kmq.Store):
    def process() -> None:
        with shop.consumer("g", topics=["t"], auto_commit=True) as consumer:
            for record in consumer:
                print(1 // (int(record.value or b"") - 5))

    with pytest.raises(ZeroDivisionError):
        process()
    assert _committed(shop) == 5


def test_without_auto_commit_a_close_commits_nothing(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer:
        consumer.consume(5)
    assert _committed(shop) is None


def test_a_seek_moves_what_is_committed_next(shop: kmq.Store):
    with shop.consumer("g", topics=["t"], auto_commit=True) as consumer:
        consumer.consume(8)
        consumer.seek("t", 0, 2)
        assert consumer.poll().offset == 2  # type: ignore[union-attr]
    assert _committed(shop) == 3


def test_a_close_that_cannot_commit_still_frees_the_place(shop: kmq.Store):
    from kmq_storage.format.entries import GroupEntry
    from kmq_storage.log.binding.binding import Unit

    consumer = shop.consumer("g", topics=["t"], auto_commit=True)
    consumer.consume(5)
    shop.log.commit([Unit((GroupEntry("g", 2, "newer", "elsewhere", {}),))])
    with pytest.raises(kmq.FencedError):
        consumer.close()
    with shop.consumer("g", topics=["t"]) as successor:
        assert successor.position() == {"t": {0: 0}}


def test_offsets_of_a_topic_that_was_made_anew_are_not_committed_for_the_next(store: kmq.Store):
    def made(value: bytes) -> None:
        store.create_topic("t")
        with store.producer() as producer:
            producer.send_batch("t", [value] * 5).result()

    made(b"former")
    with store.consumer("g", topics=["t"]) as consumer, store.producer() as producer:
        last = consumer.consume(4)[-1]
        behind = {last.topic: {last.partition: last.offset + 1}}
        store.delete_topic("t")
        made(b"new")
        with pytest.raises(kmq.FencedError, match="the topic t that was read was deleted"):
            consumer.commit(behind)  # type: ignore[arg-type]
        with pytest.raises(kmq.FencedError, match="topic t"), producer.transaction() as tx:
            tx.send_offsets(behind, consumer)  # type: ignore[arg-type]
        consumer.commit()
        assert store.describe_group("g").committed == {}
        assert [record.value for record in consumer.consume()] == [b"new"] * 5
        consumer.commit({"t": {0: 3}})
    assert store.describe_group("g").committed == {"t": {0: 3}}


def test_deleting_a_topic_between_poll_and_commit_is_an_error_that_names_it(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer:
        consumer.consume(5)
        shop.delete_topic("t")
        with pytest.raises(kmq.NotFoundError, match=r"Topic\[t\]"):
            consumer.commit({"t": {0: 5}})


def test_auto_commit_commits_before_another_subscription_forgets_the_position(shop: kmq.Store):
    shop.create_topic("other")
    with shop.consumer("g", topics=["t"], auto_commit=True) as consumer:
        consumer.consume(4)
        consumer.subscribe(["other"])
        assert _committed(shop) == 4
        consumer.subscribe(["other", "t"])
        assert consumer.position() == {"other": {0: 0}, "t": {0: 4}}


@pytest.mark.parametrize("auto_commit", [False, True])
def test_a_topic_that_is_gone_is_left_out_of_a_commit(shop: kmq.Store, auto_commit: bool):
    shop.create_topic("gone")
    consumer = shop.consumer("g", topics=["t", "gone"], auto_commit=auto_commit)
    assert len(consumer.consume(3)) == 3
    shop.delete_topic("gone")
    consumer.commit()
    assert shop.describe_group("g").committed == {"t": {0: 3}}
    assert len(consumer.consume(2)) == 2
    shop.delete_topic("t")
    consumer.close()
    assert shop.describe_group("g").committed == {}


def test_a_store_closes_all_its_handles_even_when_one_fails(store_url: str):
    from kmq_storage.format.entries import GroupEntry
    from kmq_storage.log.binding.binding import Unit

    store = kmq.open(store_url)
    store.create_topic("t")
    producer = store.producer(linger=30.0)
    sent = producer.send("t", b"v")
    sent.result(10)
    members = [store.consumer(name, topics=["t"], auto_commit=True) for name in ("a", "b", "c")]
    for member in members:
        member.poll()
    store.log.commit([Unit((GroupEntry("b", 2, "newer", "elsewhere", {}),))])
    waiting = producer.send("t", b"w")
    with pytest.raises(kmq.FencedError):
        store.close()
    assert waiting.result(0).offset == 1
    with kmq.open(store_url) as again:
        for name in ("a", "b", "c"):
            again.consumer(name, topics=["t"]).close()
        assert again.describe_group("a").committed == {"t": {0: 1}}


def test_a_group_is_behind_before_its_first_commit_too(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]):
        group = shop.describe_group("g")
        assert (group.committed, group.lag) == ({}, {"t": {0: 10}})
        assert group.lag_bytes["t"][0] > 0
        rows = list(group_rows(shop.log, shop.log.refresh()))
        assert [(row[0], *row[2:7]) for row in rows] == [("g", "t", 0, None, 10, 10)]
    assert shop.describe_group("g").lag == {"t": {0: 10}}


def test_lag_counts_what_is_still_to_be_read_and_nothing_that_was_trimmed(shop: kmq.Store):
    with shop.consumer("g", topics=["t"]) as consumer:
        consumer.consume(2)
        consumer.commit()
        whole = shop.describe_group("g")
        assert (whole.lag, consumer.lag()) == ({"t": {0: 8}}, {"t": {0: 8}})
        shop.trim("t", {0: 7})
        trimmed = shop.describe_group("g")
        assert (trimmed.lag, consumer.lag()) == ({"t": {0: 3}}, {"t": {0: 3}})
        assert trimmed.lag_bytes["t"][0] < whole.lag_bytes["t"][0]
        shop.trim("t", {0: 10})
        empty = shop.describe_group("g")
        assert (empty.lag, consumer.lag()) == ({"t": {0: 0}}, {"t": {0: 0}})
        assert (empty.lag_bytes, empty.lag_seconds) == ({"t": {0: 0}}, {"t": {0: 0.0}})
        assert empty.committed == {"t": {0: 2}}


def test_a_place_in_a_group_that_cannot_be_made_is_unavailable_and_is_had_later(tmp_path: Path):
    with kmq.open(tmp_path / "store") as store:
        store.create_topic("t")
        locks = tmp_path / "store" / "locks"
        locks.rename(tmp_path / "aside")
        locks.touch()  # as without permission, or without a free inode
        for call in (
            lambda: store.consumer("g", topics=["t"]),
            lambda: store.set_group_offsets("g", {"t": {0: 0}}),
        ):
            with pytest.raises(kmq.UnavailableError, match="locks"):
                call()
        locks.unlink()
        (tmp_path / "aside").rename(locks)
        with store.consumer("g", topics=["t"]) as consumer:
            assert consumer.assignment() == {"t": [0]}
