"""Transactions of Kmq's version 2: one topic, all at once, contiguous, or nothing.

Finds: a transaction that is stored in part, or seen before its commit, offsets that are skipped
after an abort, others' messages in between, and ends that end something else.
"""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.sending.gathered import Gathered
from kmq_spark.v2 import Kmq, KmqBroker, KmqMessage, KmqProducer
from kmq_storage import limits
from tests.unit.v2.arrays import TOPIC, bodies, in_transactions, run_in_threads, said


@pytest.fixture
def producer(broker: KmqBroker) -> KmqProducer:
    """One that may begin transactions."""
    return in_transactions(broker)


def test_a_transaction_is_seen_at_once_and_only_after_its_commit(array: Kmq, producer: KmqProducer):
    producer.begin_transaction(TOPIC)
    assert producer.send(TOPIC, KmqMessage(None, 1)) is True
    assert producer.send_without_lock(TOPIC, KmqMessage(None, 2)) is True
    assert array.poll("c") is None
    assert (array.current_write_index, array.current_can_read_max_index) == (0, -1)
    producer.commit_transaction(TOPIC)
    assert (array.current_write_index, array.current_can_read_max_index) == (2, 1)
    assert bodies(array) == [1, 2]


def test_room_that_others_make_during_a_transaction_is_used(
    producer: KmqProducer, store: kmq.Store, store_url: str
):
    for _ in range(2):
        producer.begin_transaction(TOPIC)
        assert [producer.send(TOPIC, message) for message in said(*range(5))] == [True] * 5
        producer.commit_transaction(TOPIC)
        with kmq.open(store_url) as other:
            producer.begin_transaction(TOPIC)
            other.trim(TOPIC, {0: other.offsets(TOPIC)[0][1]})
            assert producer.send(TOPIC, KmqMessage(None, "there is room"))
            producer.abort_transaction(TOPIC)


def test_offsets_of_an_aborted_transaction_are_used_again(
    array: Kmq, broker: KmqBroker, producer: KmqProducer, store: kmq.Store
):
    broker.create_producer().send(TOPIC, KmqMessage(None, 1))
    producer.begin_transaction(TOPIC)
    producer.send_without_lock(TOPIC, KmqMessage(None, 2))
    producer.abort_transaction(TOPIC)
    assert (array.current_write_index, array.current_can_read_max_index) == (1, 0)
    broker.create_producer().send(TOPIC, KmqMessage(None, 3))
    assert store.offsets(TOPIC) == {0: (0, 2)}
    assert bodies(array) == [1, 3]


def test_nothing_of_others_stands_within_a_transaction(array: Kmq, broker: KmqBroker):
    one, other = in_transactions(broker), in_transactions(broker)
    for producer in (one, other):
        producer.begin_transaction(TOPIC)
    for number in (1, 2):
        one.send_without_lock(TOPIC, KmqMessage(None, ["one", number]))
        other.send_without_lock(TOPIC, KmqMessage(None, ["other", number]))
    broker.create_producer().send(TOPIC, KmqMessage(None, "between"))
    other.commit_transaction(TOPIC)
    one.commit_transaction(TOPIC)
    expected = ["between", ["other", 1], ["other", 2], ["one", 1], ["one", 2]]
    assert bodies(array) == expected


def test_a_topic_that_gets_full_in_a_transaction_stores_nothing_of_it(
    array: Kmq, broker: KmqBroker, producer: KmqProducer
):
    producer.begin_transaction(TOPIC)
    taken = [producer.send_without_lock(TOPIC, message) for message in said(*range(7))]
    assert taken == [True] * 5 + [False] * 2
    for _ in range(2):
        with pytest.raises(kmq.TransactionAbortedError):
            producer.commit_transaction(TOPIC)
    producer.abort_transaction(TOPIC)
    assert array.current_write_index == 0
    assert broker.create_producer().send(TOPIC, KmqMessage(None, "there is room")) is True


def test_a_topic_that_others_filled_meanwhile_stores_nothing_of_a_transaction(
    array: Kmq, broker: KmqBroker, producer: KmqProducer
):
    producer.begin_transaction(TOPIC)
    for message in said(1, 2):
        assert producer.send_without_lock(TOPIC, message)
    for message in said(3, 4, 5, 6):
        assert broker.create_producer().send(TOPIC, message)
    with pytest.raises(kmq.TransactionAbortedError) as told:
        producer.commit_transaction(TOPIC)
    assert isinstance(told.value.__cause__, kmq.QueueFullError)
    producer.begin_transaction(TOPIC)  # an abort is not needed
    producer.send_without_lock(TOPIC, KmqMessage(None, 7))
    producer.commit_transaction(TOPIC)
    assert bodies(array) == [3, 4, 5, 6, 7]


def test_transactions_of_several_topics_are_independent(
    array: Kmq, broker: KmqBroker, producer: KmqProducer
):
    other = broker.create_topic("other")
    for topic in (TOPIC, "other"):
        producer.begin_transaction(topic)
        producer.send_without_lock(topic, KmqMessage(None, 1))
    producer.abort_transaction(TOPIC)
    producer.commit_transaction("other")
    assert (array.current_write_index, other.current_write_index) == (0, 1)


def test_another_thread_may_end_a_transaction(array: Kmq, producer: KmqProducer):
    producer.begin_transaction(TOPIC)
    producer.send_without_lock(TOPIC, KmqMessage(None, 1))
    run_in_threads(lambda _: producer.commit_transaction(TOPIC), 1)
    assert bodies(array) == [1]


def test_a_transaction_of_a_topic_that_was_deleted_can_be_aborted(
    broker: KmqBroker, array: Kmq, producer: KmqProducer, store: kmq.Store
):
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction(TOPIC)
        producer.send(TOPIC, KmqMessage(None, "lost"))
        store.delete_topic(TOPIC)
        if end == producer.commit_transaction:
            with pytest.raises(kmq.TransactionAbortedError, match="exist"):
                end(TOPIC)
        producer.abort_transaction(TOPIC)
        broker.create_topic(TOPIC)
        with pytest.raises(kmq.IllegalStateError, match="begin one first"):
            producer.send(TOPIC, KmqMessage(None, "of no transaction"))


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction"])
def test_what_has_not_begun_does_not_end(broker: KmqBroker, producer: KmqProducer, call: str):
    in_transactions(broker).begin_transaction(TOPIC)  # another one's
    with pytest.raises(kmq.IllegalStateError, match=r"Topic\[kk.test\].*begin one first"):
        getattr(producer, call)(TOPIC)


@pytest.mark.parametrize("flag", [5, 0, None, "false"])
def test_auto_commit_is_a_flag_and_no_other_value(producer: KmqProducer, flag: Any):
    with pytest.raises(kmq.InvalidRequestError, match="auto_commit must be True or False"):
        producer.auto_commit = flag
    assert producer.auto_commit is False


def test_no_transaction_begins_before_auto_commit_is_false(array: Kmq, broker: KmqBroker):
    producer = broker.create_producer()
    with pytest.raises(kmq.IllegalStateError, match=r"auto_commit is True.*Topic\[kk.test\]"):
        producer.begin_transaction(TOPIC)
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(kmq.IllegalStateError, match="begin one first"):
            call(TOPIC)
    assert producer.send(TOPIC, KmqMessage(None, "by itself")) is True
    producer.auto_commit = False
    producer.begin_transaction(TOPIC)
    producer.commit_transaction(TOPIC)
    assert bodies(array) == ["by itself"]


def test_sends_outside_of_the_transaction_that_auto_commit_asks_for_are_refused(
    array: Kmq, producer: KmqProducer
):
    producer.begin_transaction(TOPIC)
    producer.auto_commit = True
    with pytest.raises(kmq.IllegalStateError, match="send_without_lock"):
        producer.send(TOPIC, KmqMessage(None, 1))
    producer.auto_commit = False
    with pytest.raises(kmq.IllegalStateError, match="open already"):
        producer.begin_transaction(TOPIC)
    producer.abort_transaction(TOPIC)
    with pytest.raises(kmq.IllegalStateError, match="begin one first"):
        producer.send(TOPIC, KmqMessage(None, 1))
    assert array.current_write_index == 0


def test_closing_a_producer_aborts_and_a_closed_one_takes_nothing(
    array: Kmq, broker: KmqBroker, producer: KmqProducer
):
    broker.create_topic("other")
    with producer:
        producer.begin_transaction(TOPIC)
        producer.send_without_lock(TOPIC, KmqMessage(None, 1))
    producer.close()
    for topic in (TOPIC, "other"):
        with pytest.raises(kmq.ClosedError):
            producer.send(topic, KmqMessage(None, 1))
    assert array.current_write_index == 0


def test_who_comes_while_another_thread_commits_is_not_told_that_nothing_is_stored(
    array: Kmq, producer: KmqProducer, monkeypatch: pytest.MonkeyPatch
):
    producer.begin_transaction(TOPIC)
    producer.send(TOPIC, KmqMessage(None, "stored"))
    told: list[str] = []
    wait = Gathered.wait

    def meanwhile(self: Gathered, timeout: float | None) -> bool:
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(kmq.IllegalStateError, match="no transaction is open"):
                call(TOPIC)
            told.append(call.__name__)
        return wait(self, timeout)

    monkeypatch.setattr(Gathered, "wait", meanwhile)
    producer.commit_transaction(TOPIC)
    assert told == ["commit_transaction", "abort_transaction"]
    assert array.current_write_index == 1


@pytest.mark.parametrize("commits", [True, False])
def test_after_a_transaction_that_was_open_for_too_long_another_one_begins(
    array: Kmq, producer: KmqProducer, monkeypatch: pytest.MonkeyPatch, commits: bool
):
    producer.begin_transaction(TOPIC)
    with monkeypatch.context() as late:
        late.setattr(limits, "TRANSACTION_SECONDS_MAX", -1.0)
        with pytest.raises(kmq.TransactionAbortedError, match="TRANSACTION_SECONDS_MAX"):
            producer.send_without_lock(TOPIC, KmqMessage(None, "late"))
    if commits:
        with pytest.raises(kmq.TransactionAbortedError):
            producer.commit_transaction(TOPIC)
    producer.abort_transaction(TOPIC)
    producer.begin_transaction(TOPIC)
    producer.send_without_lock(TOPIC, KmqMessage(None, "in time"))
    producer.commit_transaction(TOPIC)
    assert bodies(array) == ["in time"]


def test_a_message_is_refused_as_one_of_a_full_topic_only_where_the_topic_is_full(
    store: kmq.Store, producer: KmqProducer, array: Kmq
):
    producer.begin_transaction(TOPIC)
    producer.send(TOPIC, KmqMessage(None, 1))
    store.delete_topic(TOPIC)
    with pytest.raises(kmq.TransactionAbortedError):
        producer.commit_transaction(TOPIC)
    with pytest.raises(kmq.TransactionAbortedError, match="abort it"):
        producer.send(TOPIC, KmqMessage(None, 2))
    producer.abort_transaction(TOPIC)
    KmqBroker(store).create_topic(TOPIC)
    producer.begin_transaction(TOPIC)
    store.close()
    with pytest.raises(kmq.ClosedError):
        producer.send(TOPIC, KmqMessage(None, 3))
