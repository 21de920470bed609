"""At a `nack`: how long a record waits, and what is said of it when it is a dead letter at last."""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from tests.support.clock import Clock


def _send(store: kmq.Store, *values: bytes) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send_to_queue("q", value)


def test_a_letter_says_what_went_wrong_at_the_last_delivery(store: kmq.Store):
    store.create_queue("q", max_deliveries=2, backoff=(0,))
    _send(store, b"nacked", b"refused", b"long")
    queue = store.queue("q")
    for attempt in (1, 2):
        (held,) = queue.receive()
        held.nack(reason=ValueError(f"attempt {attempt}"))
    queue.receive()[0].reject(KeyError("customer"))
    queue.receive()[0].reject(OSError("x" * 10_000 + "\udc80"))
    letters = store.queue("q.dlq").receive(3)
    reasons = [str(each.properties["dead_letter_reason"]) for each in letters]
    assert reasons[:2] == ["ValueError: attempt 2", "KeyError: 'customer'"]
    assert reasons[2] == "OSError: " + "x" * 991


@pytest.mark.parametrize("call", ["nack", "reject"])
def test_a_reason_that_is_none_is_refused_and_the_record_stays_with_its_holder(
    store: kmq.Store, call: str
):
    store.create_queue("q")
    _send(store, b"1")
    (held,) = store.queue("q").receive()
    with pytest.raises(kmq.InvalidRequestError, match="reason must be text or an exception"):
        getattr(held, call)(reason=7)
    held.ack()


def test_each_nack_waits_as_long_as_the_list_of_pauses_says(store: kmq.Store, clock: Clock):
    store.create_queue("q", max_deliveries=None, backoff=(1, 5, 30), lock_timeout=600)
    _send(store, b"1")
    queue = store.queue("q")
    for seconds in (1, 5, 30, 30):
        (held,) = queue.receive()
        held.nack()
        clock.pass_seconds(seconds - 0.5)
        assert queue.receive() == []
        clock.pass_seconds(1)
