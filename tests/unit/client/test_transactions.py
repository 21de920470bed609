"""Transactions in one process: what is stored, when it is seen, and what is told.

Finds: a part of a transaction that is stored alone, records of others in between, futures that are
done too early or never, sends that end up outside of their transaction, and offsets that move
though nothing was committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.format.entries import GroupOffsetsEntry, RecordsEntry
from tests.unit.client.stored import aborted, lsn, values

# --- all or nothing ---------------------------------------------------------------------------


def test_a_transaction_is_one_commit_of_records_of_all_topics_and_offsets(shop: kmq.Store):
    consumer = shop.consumer("g", topics=["a"])
    with shop.producer() as producer:
        producer.send_batch("a", [b"1", b"2"]).result(10)
        assert len(consumer.consume(timeout=0)) == 2
        before = lsn(shop)
        with producer.transaction() as tx:
            single = tx.send("a", b"3")
            batch = tx.send_batch("b", [b"4", b"5"])
            arrow = tx.send_arrow("c", pa.table({"value": [b"6"]}))
            tx.commit_offsets(consumer)
            tx.commit_offsets({"other": {"a": {0: 1}}})
            assert lsn(shop) == before
            assert not single.done()
        assert lsn(shop) == before + 1
    (commit,) = shop.commits(before + 1)
    kinds = [type(entry) for entry in commit.entries]
    assert kinds.count(RecordsEntry) == 3
    assert kinds.count(GroupOffsetsEntry) == 2
    assert [values(shop, topic) for topic in "abc"] == [[b"1", b"2", b"3"], [b"4", b"5"], [b"6"]]
    assert single.result().offset == 2
    assert [each.offset for each in batch.result()] == [0, 1]
    assert arrow.result().offsets == {0: (0, 1)}
    assert consumer.committed() == {"a": {0: 2}}
    assert shop.describe_group("other").committed == {"a": {0: 1}}


def test_an_exception_leaves_nothing_and_the_futures_have_its_cause(shop: kmq.Store):
    told: list[Any] = []
    with shop.producer() as producer:
        before = lsn(shop)
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:
            futures = [
                tx.send("a", b"1", on_delivery=lambda error, _: told.append(error)),
                tx.send_batch("b", [b"2"]),
                tx.send_arrow("c", pa.table({"value": [b"3"]})),
            ]
            tx.commit_offsets({"g": {"a": {0: 0}}})
            raise ZeroDivisionError
        errors = [aborted(future, ZeroDivisionError) for future in futures]
        producer.flush()
        assert lsn(shop) == before
        assert "g" not in [group.name for group in shop.groups()]
    assert told == errors[:1]


def test_offsets_of_an_aborted_transaction_are_given_to_the_next(shop: kmq.Store):
    with shop.producer() as producer:
        for outcome in ("abort", "commit", "abort", "commit"):
            tx = producer.begin_transaction()
            tx.send_batch("a", [b"1", b"2"])
            producer.abort_transaction() if outcome == "abort" else producer.commit_transaction()
    assert [r.offset for r in shop.consumer(topics=["a"]).consume(timeout=0)] == [0, 1, 2, 3]


def test_records_of_a_transaction_are_contiguous_whatever_others_send_meanwhile(shop: kmq.Store):
    """Kafka's predecessor in one process held a lock for that; here one commit does it."""
    with shop.producer(linger=0) as other, shop.producer() as producer:
        for _ in range(5):
            with producer.transaction() as tx:
                for number in range(20):
                    tx.send("a", b"mine", partition=0)
                    if number % 5 == 0:
                        other.send("a", b"other").result(10)
                tx.send_batch("a", [b"mine"] * 5)
    runs = b"".join(value[:1] for value in values(shop, "a") if value).split(b"o")
    assert [run for run in runs if run] == [b"m" * 25] * 5


def test_what_was_sent_before_is_before_and_what_is_sent_after_is_after(shop: kmq.Store):
    with shop.producer(linger=30.0) as producer:
        producer.send("a", b"1")
        with producer.transaction() as tx:
            tx.send("a", b"2")
            tx.send_batch("a", [b"3"])
            tx.send("a", b"4")
        producer.send("a", b"5")
    assert values(shop, "a") == [b"1", b"2", b"3", b"4", b"5"]


def test_all_sends_of_the_producer_from_any_thread_take_part(shop: kmq.Store):
    with shop.producer() as producer:
        producer.begin_transaction()
        before = lsn(shop)
        threads = [
            threading.Thread(target=lambda: [producer.send("a", b"v") for _ in range(500)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(producer) == 2_000
        assert producer.flush() == 0
        assert lsn(shop) == before
        producer.commit_transaction()
        assert lsn(shop) == before + 1
        assert len(producer) == 0
    assert len(values(shop, "a")) == 2_000


def test_a_transaction_of_nothing_is_no_commit(shop: kmq.Store):
    with shop.producer() as producer:
        before = lsn(shop)
        with producer.transaction():
            pass
        with producer.transaction() as tx:
            assert tx.send_batch("a", []).result(10) == []
        assert lsn(shop) == before


def test_an_open_transaction_keeps_nobody_waiting(shop: kmq.Store):
    with shop.producer() as producer, shop.producer() as other:
        with producer.transaction() as tx:
            future = tx.send("a", b"late")
            assert other.send("a", b"early").result(10).offset == 0
            with other.transaction() as second:
                second.send("a", b"earlier than the first to begin")
            shop.add_partitions("b", 2)
            assert len(shop.consumer(topics=["a"]).consume(timeout=0)) == 2
        assert future.result().offset == 2


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("send", "cause"),
    [
        (lambda tx: tx.send("nowhere", b"v"), kmq.NotFoundError),
        (lambda tx: tx.send("a", b"v" * 2_000), kmq.InvalidRequestError),
        (lambda tx: tx.send("a", b"v", partition=7), kmq.InvalidRequestError),
        (lambda tx: tx.send_batch("small", [b"v"] * 3), kmq.QueueFullError),
        (lambda tx: [tx.send("small", b"v") for _ in range(3)], kmq.QueueFullError),
        (lambda tx: tx.send_arrow("nowhere", pa.table({"value": [b"v"]})), kmq.NotFoundError),
        (lambda tx: tx.commit_offsets({"g": {"a": {0: 9}}}), kmq.OffsetOutOfRangeError),
    ],
    ids=("no topic", "too large", "no partition", "full", "rows", "arrow", "offsets"),
)
def test_one_that_is_refused_aborts_all(
    shop: kmq.Store, send: Callable[[Any], object], cause: type[kmq.KmqError]
):
    shop.create_topic("small", capacity=2)
    shop.create_topic("a", exist_ok=True)
    shop.alter_topic("a", max_record_bytes=1_000)
    with shop.producer() as producer:
        before = lsn(shop)
        with pytest.raises(kmq.TransactionAbortedError) as raised, producer.transaction() as tx:
            good = [tx.send("a", b"v"), tx.send("b", b"v")]
            send(tx)
            good += [tx.send("c", b"v")]
        assert isinstance(raised.value.__cause__, cause)
        assert str(raised.value.__cause__) in str(raised.value)
        for future in good:
            aborted(future, cause)
        assert lsn(shop) == before
        with producer.transaction() as tx:  # and the producer goes on
            tx.send("a", b"v")
    assert len(values(shop, "a")) == 1


def test_a_wrong_argument_is_told_at_once(shop: kmq.Store):
    with shop.producer() as producer:
        alone = shop.consumer()
        with producer.transaction() as tx:
            for call, error in (
                (lambda: tx.send("a", 5), kmq.InvalidRequestError),
                (lambda: tx.send_batch("a", b"text"), kmq.InvalidRequestError),
                (lambda: tx.commit_offsets(None), kmq.InvalidRequestError),
                (lambda: tx.commit_offsets({"g": 3}), kmq.InvalidRequestError),
                (lambda: tx.commit_offsets({"g": {"a": {"0": 1}}}), kmq.InvalidRequestError),
                (lambda: tx.commit_offsets({"../g": {"a": {0: 0}}}), kmq.InvalidRequestError),
                (lambda: tx.commit_offsets({"g": {"nowhere": {0: 0}}}), kmq.NotFoundError),
                (lambda: tx.commit_offsets({"g": {"a": {7: 0}}}), kmq.NotFoundError),
                (lambda: tx.commit_offsets(alone), kmq.IllegalStateError),
            ):
                with pytest.raises(error):
                    call()
            tx.send("a", b"good")
    assert values(shop, "a") == [b"good"]


def test_calls_that_do_not_fit_its_life_are_refused(shop: kmq.Store):
    with shop.producer() as producer:
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets_to_transaction({"a": {0: 0}}, "g"),
            lambda: producer.transaction().send("a", b"v"),
        ):
            with pytest.raises(kmq.IllegalStateError):
                call()
        with producer.transaction() as tx:
            with pytest.raises(kmq.IllegalStateError, match="open already"):
                producer.begin_transaction()
            with pytest.raises(kmq.IllegalStateError, match="open already"), producer.transaction():
                pass
            tx.send("a", b"v")
        for call in (lambda: tx.send("a", b"v"), lambda: tx.commit_offsets({"g": {"a": {0: 0}}})):
            with pytest.raises(kmq.IllegalStateError, match="over"):
                call()
        with pytest.raises(kmq.IllegalStateError, match="begins once"), tx:
            pass
    with pytest.raises(kmq.ClosedError):
        producer.begin_transaction()
    assert values(shop, "a") == [b"v"]


def test_waiting_for_a_future_before_the_commit_is_told_instead_of_waiting_for_ever(
    shop: kmq.Store,
):
    with shop.producer() as producer:
        with producer.transaction() as tx:
            future = tx.send("a", b"v")
            with pytest.raises(kmq.IllegalStateError, match="after the commit"):
                future.result()
            with pytest.raises(kmq.KmqTimeoutError):
                future.result(0.01)
            waited: list[Any] = []
            waiter = threading.Thread(target=lambda: waited.append(future.result()))
            waiter.start()
        waiter.join()
    assert waited[0].offset == 0


def test_a_consumer_that_commits_by_itself_is_refused(shop: kmq.Store):
    consumer = shop.consumer("g", topics=["a"], auto_commit=True)
    with shop.producer() as producer:
        refused = pytest.raises(kmq.IllegalStateError, match="auto_commit")
        with producer.transaction() as tx, refused:
            tx.commit_offsets(consumer)


def test_a_commit_in_a_callback_is_refused_and_an_abort_there_is_none(shop: kmq.Store):
    told: list[Any] = []

    def called(error: Any, place: Any) -> None:
        tx = producer.begin_transaction()
        sent.append(tx.send("b", b"v"))
        try:
            producer.commit_transaction()
        except kmq.IllegalStateError as refused:
            told.append(refused)
        producer.abort_transaction()

    sent: list[Any] = []
    with shop.producer() as producer:
        producer.send("a", b"v", on_delivery=called)
        producer.flush()
        assert len(told) == 1
        aborted(sent[0])
    assert values(shop, "b") == []


# --- offsets ----------------------------------------------------------------------------------


def test_a_member_that_lost_its_partitions_aborts_all(shop: kmq.Store):
    old = shop.consumer("g", topics=["a"], name="m")
    with shop.producer() as producer:
        producer.send_batch("a", [b"v"] * 10).result(10)
        assert len(old.consume(timeout=0)) == 10
        with pytest.raises(kmq.TransactionAbortedError) as raised, producer.transaction() as tx:
            result = tx.send("b", b"computed twice")
            tx.commit_offsets(old)
            new = shop.consumer("g", topics=["a"], name="m")
        assert isinstance(raised.value.__cause__, kmq.FencedError)
        aborted(result, kmq.FencedError)
        assert new.committed() == {}
        assert len(new.consume(timeout=0)) == 10
    assert values(shop, "b") == []


@pytest.mark.parametrize("look", ["poll", "consume", "consume_arrow"])
def test_records_whose_partition_went_to_another_member_before_the_commit_abort_all(
    shop: kmq.Store, look: str
):
    shop.create_topic("two", partitions=2)
    with shop.producer() as producer:
        for partition in (0, 1):
            producer.send("two", b"%d" % partition, partition=partition).result(10)
        first = shop.consumer("g", topics=["two"])
        records = first.consume(timeout=0)
        second = shop.consumer("g", topics=["two"])
        getattr(first, look)(timeout=0)  # gives one away
        with pytest.raises(kmq.TransactionAbortedError) as told, producer.transaction() as tx:
            tx.send_batch("b", [record.value for record in records])
            tx.commit_offsets(first)
        assert isinstance(told.value.__cause__, kmq.FencedError)
        assert len(second.consume(timeout=0)) == 1
        with producer.transaction() as tx:
            tx.commit_offsets(first)
            tx.commit_offsets(second)
    assert (len(records), values(shop, "b")) == (2, [])


def test_what_was_committed_before_its_partition_went_aborts_nothing(shop: kmq.Store):
    shop.create_topic("two", partitions=2)
    with shop.producer() as producer:
        producer.send_batch("two", [b"0"], partition=1).result(10)
        first = shop.consumer("g")
        first.subscribe(["two"], on_revoke=lambda _: first.commit())
        for _ in range(2):
            first.consume(timeout=0)
            with shop.consumer("g", topics=["two"]):
                assert first.assignment() == {"two": [0]}
            producer.send_batch("two", [b"1"], partition=0).result(10)
            with producer.transaction() as tx:
                tx.send("b", b"x")
                tx.commit_offsets(first)
            first.consume(timeout=0)
            first.seek_to_end()
    assert values(shop, "b") == [b"x", b"x"]


def test_offsets_may_be_given_with_the_member_that_commits_them(shop: kmq.Store):
    with shop.producer() as producer:
        producer.send_batch("a", [b"v"] * 10).result(10)
        consumer = shop.consumer("g", topics=["a"])
        consumer.consume(timeout=0)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({"a": {0: 3}}, consumer)
        producer.send_offsets_to_transaction({"a": {0: 4}}, consumer)  # the last word counts
        producer.commit_transaction()
        assert consumer.committed() == {"a": {0: 4}}


def test_the_offsets_of_another_stores_consumer_are_refused_at_once(shop: kmq.Store):
    with kmq.open("memory://another") as other, shop.producer() as producer:
        other.create_topic("t")
        with other.consumer("g", topics=["t"]) as theirs:
            assert theirs.assignment() == {"t": [0]}
            with producer.transaction() as tx:
                for commit in (
                    lambda: tx.commit_offsets(theirs),
                    lambda: producer.send_offsets_to_transaction({"t": {0: 0}}, theirs),
                ):
                    with pytest.raises(kmq.InvalidRequestError, match="store memory://another"):
                        commit()
    assert not any(group.committed for group in shop.groups())
