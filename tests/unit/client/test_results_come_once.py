"""Read, process, write: a transaction whose records come again at another member is aborted.

Finds: results that are stored without the offsets of what they were made of, after whatever the
consumer was asked in between.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kmq_spark as kmq
from kmq_spark.client.consuming.subscription import TopicPartition
from kmq_spark.client.consuming.uncommitted import Uncommitted
from tests.support.members import without_watch
from tests.unit.client.stored import values

PLACE = TopicPartition("two", 1, b"\1" * 16)


@pytest.fixture
def two(shop: kmq.Store) -> kmq.Store:
    """A topic `two` with two partitions, the second of which has three records."""
    shop.create_topic("two", partitions=2)
    with shop.producer() as producer:
        producer.send_batch("two", [b"1", b"2", b"3"], partition=1).result(10)
    return shop


def _results(store: kmq.Store, records: list[kmq.Record], consumer: kmq.Consumer) -> None:
    with store.producer() as producer, producer.transaction() as tx:
        tx.send_batch("b", [record.value for record in records])
        tx.commit_offsets(consumer)


def _all_results(store: kmq.Store, consumer: kmq.Consumer) -> list[bytes | None]:
    while records := consumer.consume(2, timeout=0):
        _results(store, records, consumer)
    return values(store, "b")


@pytest.mark.parametrize(
    "give_up",
    [
        lambda consumer: consumer.subscribe(["a"]),
        lambda consumer: consumer.assign({"two": [0]}),
        lambda consumer: consumer.unsubscribe(),
    ],
    ids=["subscribe", "assign", "unsubscribe"],
)
def test_another_subscription_that_gives_the_records_up(
    two: kmq.Store, give_up: Callable[[kmq.Consumer], None]
):
    with two.consumer("g", topics=["two"]) as first:
        records = first.consume(2, timeout=0)
        give_up(first)
        with pytest.raises(kmq.TransactionAbortedError, match="handed out and not committed"):
            _results(two, records, first)
    with two.consumer("g", topics=["two"]) as second:
        assert _all_results(two, second) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("call", ["lag", "subscribe"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_records_of_a_member_that_was_replaced_though_another_one_committed_them(
    two: kmq.Store, call: str, *, is_committed: bool
):
    """What it committed itself is its own; then the commit has nothing to leave out."""
    with without_watch():
        first, second = two.consumer("g", topics=["two"]), two.consumer("g", topics=["a"])
    with first, second:
        records = first.consume(2, timeout=0)
        if is_committed:
            first.commit()
        second._member.place._plan_away({first._member.place.epoch})  # type: ignore[union-attr]
        second.subscribe(["two"])
        again = second.consume(2, timeout=0)
        _results(two, again, second)
        assert len(again) == (1 if is_committed else 2)
        first.subscribe(["two"]) if call == "subscribe" else getattr(first, call)()
        if is_committed:
            first.commit()
            return
        with pytest.raises(kmq.TransactionAbortedError, match="handed out and not committed"):
            _results(two, records, first)
        assert values(two, "b") == [b"1", b"2"]


def test_a_subscription_that_keeps_the_records_keeps_their_transaction(two: kmq.Store):
    with two.consumer("g", topics=["two"]) as consumer:
        records = consumer.consume(2, timeout=0)
        consumer.subscribe(["two", "a"])
        _results(two, records, consumer)
        assert _all_results(two, consumer) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("before", ["a seek", "an aborted try"])
def test_what_was_handed_out_is_known_after(two: kmq.Store, before: str):
    with two.consumer("g") as first:
        first.subscribe(["two"], on_revoke=lambda _: None)
        records = first.consume(2, timeout=0)
        if before == "a seek":
            first.seek("two", 1, 2)
        else:
            with (
                pytest.raises(OSError, match="elsewhere"),
                two.producer() as producer,
                producer.transaction() as tx,
            ):
                tx.commit_offsets(first)
                raise OSError("elsewhere")
        with two.consumer("g", topics=["two"]) as second:
            first.lag()  # gives one away
            with pytest.raises(kmq.TransactionAbortedError, match="handed out and not committed"):
                _results(two, records, first)
            assert _all_results(two, second) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("question", ["assignment", "committed", "lag", "position", "pause"])
def test_a_question_gives_no_partition_away_whose_records_are_in_the_making(
    two: kmq.Store, question: str
):
    with (
        two.consumer("g", topics=["two"]) as first,
        two.producer() as producer,
        two.consumer("g") as second,
    ):
        records = first.consume(2, timeout=0)
        second.subscribe(["two"])
        getattr(first, question)()
        producer.begin_transaction()
        producer.send_batch("b", [record.value for record in records])
        producer.send_offsets_to_transaction(first.position(), first)
        producer.commit_transaction()
        first.resume()
        assert first.consume(1, timeout=0) == []  # now it goes
        assert _all_results(two, second) == [b"1", b"2", b"3"]


def test_what_is_trimmed_before_the_commit_is_left_out_of_it(two: kmq.Store):
    with two.consumer("g", topics=["two", "a"]) as consumer, two.producer() as producer:
        producer.send_batch("a", [b"0"]).result(10)
        records = consumer.consume(9, timeout=0)[:2]
        consumer.seek("two", 1, 2)
        with producer.transaction() as tx:
            tx.send_batch("b", [record.value for record in records])
            tx.commit_offsets(consumer)
            two.trim("two", {1: 3})
        assert two.describe_group("g").committed == {"a": {0: 1}, "two": {0: 0}}
    assert len(values(two, "b")) == 2


def test_the_last_word_for_a_partition_counts_whoever_says_it(two: kmq.Store):
    with two.consumer("g", topics=["two"]) as consumer, two.producer() as producer:
        with producer.transaction() as tx:
            for offset in (1, 2, 3):
                consumer.seek("two", 1, offset)
                tx.commit_offsets(consumer if offset != 2 else {"g": {"two": {1: offset}}})
        assert consumer.committed()["two"][1] == 3


@pytest.mark.parametrize(
    ("seeks", "position", "comes_again"),
    [
        ([], 0, False),
        ([], 2, True),
        ([(2, 2)], 2, True),
        ([(2, 5)], 5, True),
        ([(2, 1)], 1, True),
        ([(2, 0)], 0, False),
        ([(2, 0)], 1, True),
        ([(0, 5)], 5, False),
        ([(2, 5), (5, 0)], 0, False),
    ],
)
def test_records_come_again_elsewhere_unless_a_seek_brings_them_again_here(
    seeks: list[tuple[int, int]], position: int, *, comes_again: bool
):
    """Each seek is of the next offset then, and where it went."""
    uncommitted = Uncommitted("g")
    uncommitted.begin(PLACE, 0)
    for before, target in seeks:
        uncommitted.seek(PLACE, before, target)
    assert (uncommitted.reached(PLACE, position) > 0) == comes_again
