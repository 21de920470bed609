"""A topic that a queue gives up and reads again, while receivers have records of it.

Finds: records in two hands, and answers of before that count for who has the record now.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import pytest

import kmq_spark as kmq
from kmq_storage.arrays import Numbers
from kmq_storage.format.queue_entries import RECALL, Run
from kmq_storage.log.binding.binding import Unit
from kmq_storage.log.state.queues.partition_rows import Rows
from kmq_storage.queues.handing import answer


@pytest.mark.parametrize("filter_", [None, "n = 1"])
def test_a_record_that_is_held_while_its_topic_is_bound_anew_stays_its_holders(
    store: kmq.Store, filter_: str | None
):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        producer.send_batch("t", [b"held", b"late", b"done"]).result()
    former, other = store.queue("q"), store.queue("q")
    held, late, done = former.receive(3)
    done.ack()
    late.nack(0)
    store.unbind_queue("q", ["t"])
    with pytest.raises(kmq.LeaseExpiredError):
        held.ack()
    store.bind_queue("q", ["t"], filter=filter_)
    came = [(each.value, each.delivery_count) for each in other.receive(9)]
    assert came == [(b"late", 2), *[(b"done", 1) for _ in [0] if filter_ is None]]
    with pytest.raises(kmq.LeaseExpiredError):
        late.ack()
    held.ack()
    assert store.queue("q").stats().locked == len(came)


def test_records_that_are_missing_in_a_topic_that_was_unbound_meanwhile_are_no_matter_any_more(
    store: kmq.Store,
):
    """Whoever found them missing may not begin the topic anew from its first record on."""
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        producer.send_batch("t", [b"old"] * 5).result()
    store.unbind_queue("q", ["t"])
    state = store.log.refresh()
    queue, topic = state.queue("q"), state.topic("t")
    missing = Run(topic.id, 0, 1, 2, queue.unnumbered(topic.id))
    with pytest.raises(kmq.ConflictError, match="unbound"):
        store.log.commit([Unit((answer(store.log, queue, RECALL, [missing]),))])
    store.bind_queue("q", ["t"], start="latest")
    assert store.queue("q").receive() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_second_answer_is_refused_though_its_topic_was_bound_anew(tmp_path, restarts: bool):
    with ExitStack() as stack:
        store = stack.enter_context(kmq.open(tmp_path))
        store.create_topic("t")
        store.create_queue("q", topics=["t"], max_deliveries=1)
        with store.producer() as producer:
            producer.send_batch("t", [b"one", b"two"]).result()
        finished = []
        for _ in range(3):
            one, two = store.queue("q").receive(2)
            assert [one.delivery_count, two.delivery_count] == [1, 1]
            for former in finished:
                for answer in (former.ack, former.nack, former.reject, partial(former.extend, 9)):
                    with pytest.raises(kmq.LeaseExpiredError):
                        answer()
            one.ack()
            two.ack()
            finished += [one, two]
            store.unbind_queue("q", ["t"])
            if restarts:
                store.checkpoint()
            store = stack.enter_context(kmq.open(tmp_path)) if restarts else store
            store.bind_queue("q", ["t"])
        assert store.queue("q").stats().acked == 6


def test_a_second_answer_to_rows_of_arrow_is_refused_though_their_topic_was_bound_anew(
    store: kmq.Store,
):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        producer.send_batch("t", [b"one", b"two"]).result()
    queue = store.queue("q")
    former = queue.receive_arrow(9)
    queue.ack(former)
    store.unbind_queue("q", ["t"])
    store.bind_queue("q", ["t"])
    assert queue.receive_arrow(9).num_rows == 2
    with pytest.raises(kmq.LeaseExpiredError):
        queue.ack(former)
    assert queue.state()["delivery_count"].to_pylist() == [1, 1]


def test_what_was_held_of_a_topic_that_was_given_up_is_known_after_a_restart(tmp_path):
    with kmq.open(tmp_path) as store:
        store.create_topic("t", partitions=2)
        store.create_queue("q", topics=["t"])
        with store.producer() as producer:
            for partition in (0, 1):
                producer.send("t", b"%d" % partition, partition=partition).result()
        former = store.queue("q")
        (held,) = former.receive()
        store.unbind_queue("q", ["t"])
        store.checkpoint()
        with kmq.open(tmp_path) as restarted:
            restarted.bind_queue("q", ["t"])
            other = restarted.queue("q").receive(9)
            assert [each.partition for each in other] == [1 - held.partition]
            held.ack()
            assert restarted.queue("q").stats().acked == 1


def test_a_topic_that_is_read_from_behind_what_is_held_leaves_it_to_its_holders(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    first, second, third = store.queue("q"), store.queue("q"), store.queue("q")
    with store.producer() as producer:
        producer.send("t", b"first").result()
        (held,) = first.receive()
        store.unbind_queue("q", ["t"])
        store.bind_queue("q", ["t"], start="latest")
        with pytest.raises(kmq.LeaseExpiredError):
            held.ack()
        producer.send("t", b"second").result()
        (later,) = second.receive(9)
    store.unbind_queue("q", ["t"])
    store.bind_queue("q", ["t"], start="earliest")
    assert third.receive(9) == []
    held.ack()
    later.ack()
    assert third.stats().acked == 2


def test_the_first_record_behind_many_that_are_held_is_found_in_few_looks(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        producer.send_batch("t", [b"held"] * 1_000 + [b"free"]).result()
    store.queue("q").receive(1_000)
    store.unbind_queue("q", ["t"])
    store.bind_queue("q", ["t"])
    looks: list[int] = []
    offsets = Rows.offsets

    def counted(rows: Rows, first: int, end: int) -> Numbers:
        looks.append(first)
        return offsets(rows, first, end)

    monkeypatch.setattr(Rows, "offsets", counted)
    assert [each.value for each in store.queue("q").receive()] == [b"free"]
    assert len(looks) < 50
