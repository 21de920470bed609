"""What errors of queues say: which topic, partition and offset, and what is allowed instead."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_spark.client import compiled


def test_a_late_answer_names_the_topic_of_each_record(store: kmq.Store):
    with store.producer() as producer:
        for topic in ("a", "b", "gone"):
            store.create_topic(topic)
            producer.send_batch(topic, [b"1", b"2"])
        store.create_queue("q", topics=["a", "b", "gone"], lock_timeout=0.05)
        producer.send_to_queue("q", b"3")
    queue = store.queue("q")
    held = queue.receive(7)
    queue.receive(1, timeout=None)
    for topic, says in (
        ("b", r"2 record\(s\) .* offset 0 of b-0\)"),
        (None, r"1 record\(s\) .* of queue:q-0\)"),
    ):
        with pytest.raises(kmq.LeaseExpiredError, match=says):
            queue.ack([each for each in held if each.topic == topic])
    store.delete_topic("gone")
    with pytest.raises(kmq.LeaseExpiredError) as raised:
        queue.ack(held)
    late = sorted(raised.value.context["late"], key=str)
    assert late == [("a", 0, 0, 2), ("b", 0, 0, 2), ("queue:q", 0, 0, 1), (None, 0, 0, 2)]


def test_a_queue_says_that_a_value_may_not_be_none(store: kmq.Store):
    store.create_queue("q")
    says = "value must be bytes or text, not NoneType"
    with store.producer() as producer, pytest.raises(kmq.InvalidRequestError, match=says):
        producer.send_to_queue("q", None)  # type: ignore[arg-type]


class Name(str):
    """A name as an enumeration of a caller's may have it."""

    __slots__ = ()


def _in_a_transaction(store: kmq.Store, producer: kmq.Producer, name: str) -> None:
    with producer.transaction() as transaction:
        transaction.send(name, None, key=b"k")


_CALLS: list[Callable[[kmq.Store, kmq.Producer, str], object]] = [
    lambda _, producer, name: producer.send(name, None, key=b"k"),
    lambda _, producer, name: producer.send(name, b"v", on_delivery=print),
    lambda _, producer, name: producer.send_batch(name, [b"v"]),
    lambda _, producer, name: producer.send_arrow(name, pa.table({"value": [b"v"]})),
    _in_a_transaction,
    lambda store, _, name: store.trim(name, {0: 1}),
]


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_queue_is_reached_by_no_name_of_a_topic(
    store: kmq.Store, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compiled, "is_there", is_compiled and compiled.is_there)
    store.create_queue("o")
    for call, name in product(_CALLS, ["queue:o", Name("queue:o")]):
        with store.producer(linger=60.0) as producer:
            producer.send_to_queue("o", b"0")  # now rows wait for the queue's log
            with pytest.raises(kmq.InvalidRequestError, match="name 'queue:o' is not allowed"):
                call(store, producer, name)
    assert {each.value for each in store.queue("o").receive(99)} == {b"0"}


def test_a_late_answer_names_no_record_that_is_still_held(store: kmq.Store):
    store.create_topic("t")
    store.create_queue("q", topics=["t"])
    with store.producer() as producer:
        producer.send_batch("t", [b"%d" % n for n in range(6)])
    queue = store.queue("q")
    table = queue.receive_arrow()
    assert table is not None
    for answered in (table.slice(1, 1), table.slice(4, 1)):
        queue.ack(answered)
    with pytest.raises(
        kmq.LeaseExpiredError, match=r"2 record\(s\) \(the first is offset 1 of t-0\)"
    ) as raised:
        queue.ack(table)
    assert raised.value.context["late"] == [("t", 0, 1, 1), ("t", 0, 4, 1)]
    assert queue.stats().locked == 4
