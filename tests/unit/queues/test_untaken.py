"""What the path of a record tells when no receiver got it, or one failed at it.

Finds: a record that expired or was refused and looks as if it waited, and a reason that was given
and not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.format.entries import decode_entries, encode_entry
from kmq_storage.format.queue_entries import RETRY, AnswerEntry, Run
from kmq_storage.queues.lost_records import NOT_THERE
from tests.support.clock import Clock

LATER = datetime.now(UTC) + timedelta(days=1)


def _told(store: kmq.Store, topic: str, offset: int) -> list[tuple[str, Mapping[str, Any]]]:
    """The path of a record, without who sent it and who received it."""
    hidden = {"producer", "sequence", "client", "delivery"}
    return [
        (step.event, {name: fact for name, fact in step.facts.items() if name not in hidden})
        for step in store.trace(topic, 0, offset)
    ]


def _send(store: kmq.Store, *amounts: int) -> None:
    with store.producer() as producer:
        for amount in amounts:
            producer.send("orders", b"v", b"k", properties={"amount": amount})


@pytest.fixture
def large(store: kmq.Store) -> kmq.Queue:
    """A queue of those orders that have an amount of 100 or more."""
    store.create_topic("orders")
    store.create_queue("large")
    store.bind_queue("large", "orders", filter="amount >= 100")
    return store.queue("large")


def test_a_record_was_sent_with_its_times_and_its_priority(store: kmq.Store):
    store.create_queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"1")
        producer.send_to_queue("q", b"2", deliver_at=LATER, expires_at=LATER, priority=9).result()
    assert _told(store, "queue:q", 0) == [("sent", {})]
    facts = {"deliver_at": LATER, "expires_at": LATER, "priority": 9}
    assert _told(store, "queue:q", 1) == [("sent", facts)]


def test_a_record_expired_in_the_commit_that_dropped_it_or_in_none_yet(
    store: kmq.Store, clock: Clock
):
    store.create_queue("q")
    with store.producer() as producer:
        producer.send_to_queue("q", b"1", expires_at=LATER).result()
    assert [event for event, _ in _told(store, "queue:q", 0)] == ["sent"]
    clock.pass_seconds(2 * 86_400)
    expired = ("expired", {"queue": "q", "expires_at": LATER})
    assert _told(store, "queue:q", 0)[1:] == [expired]
    assert store.trace("queue:q", 0, 0)[1].lsn is None
    assert store.queue("q").receive() == []
    assert _told(store, "queue:q", 0)[1:] == [expired]
    assert store.trace("queue:q", 0, 0)[1].lsn == store.log.state.lsn


def test_a_record_expires_in_nobodys_hands_and_once(store: kmq.Store, clock: Clock):
    store.create_queue("q", lock_timeout=7 * 86_400)
    with store.producer() as producer:
        for value in (b"held", b"acked", b"nacked"):
            producer.send_to_queue("q", value, expires_at=LATER)
        producer.send_to_queue("q", b"other").result()
    queue = store.queue("q", prefetch=1)
    _, acked, nacked = queue.receive(3)
    acked.ack()
    nacked.nack(3 * 86_400)
    clock.pass_seconds(2 * 86_400)
    for _ in range(2):
        queue.receive()[0].nack(0)
    paths = [[event for event, _ in _told(store, "queue:q", n)][2:] for n in range(3)]
    assert paths == [[], ["acked"], ["retried", "expired"]]
    clock.pass_seconds(6 * 86_400)
    queue.receive()
    assert [event for event, _ in _told(store, "queue:q", 0)] == ["sent", "delivered", "expired"]


def test_a_filter_refused_a_record_whether_or_not_a_receiver_looked(
    store: kmq.Store, large: kmq.Queue
):
    _send(store, 50, 150)
    refused = ("refused", {"queue": "large", "filter": "amount >= 100"})
    assert _told(store, "orders", 0)[1:] == [refused]
    assert [each.offset for each in large.receive(9)] == [1]
    assert _told(store, "orders", 0)[1:] == [refused]
    assert store.trace("orders", 0, 0)[1].lsn is not None
    assert [event for event, _ in _told(store, "orders", 1)] == ["sent", "delivered"]


def test_a_refusal_names_the_filter_of_its_time(store: kmq.Store, large: kmq.Queue):
    _send(store, 50)
    assert large.receive() == []
    store.bind_queue("large", "orders", filter="amount >= 200")
    _send(store, 150)
    assert large.receive() == []
    filters = [dict(facts)["filter"] for n in (0, 1) for _, facts in _told(store, "orders", n)[1:]]
    assert filters == ["amount >= 100", "amount >= 200"]
    store.trim("orders", {0: 2})
    assert [event for event, _ in _told(store, "orders", 0)] == ["sent", "refused", "trimmed"]


def test_a_record_in_a_receivers_hands_is_not_refused_by_a_later_binding(
    store: kmq.Store, large: kmq.Queue
):
    _send(store, 150)
    (held,) = large.receive()
    store.unbind_queue("large", "orders")
    store.bind_queue("large", "orders", filter="amount >= 200")
    assert [event for event, _ in _told(store, "orders", 0)] == ["sent", "delivered"]
    assert large.receive() == []
    assert [event for event, _ in _told(store, "orders", 0)] == ["sent", "delivered"]
    held.ack()
    assert [event for event, _ in _told(store, "orders", 0)][2:] == ["acked"]


def _compact(store: kmq.Store) -> None:
    """Have the first of two records of a key removed."""
    with store.producer() as producer:
        for _ in range(2):
            producer.send("prices", b"v", b"k", properties={"amount": 150}).result()
    store.seal()
    store.compact("prices")


def test_what_was_compacted_away_before_a_look_was_not_refused(store: kmq.Store):
    store.create_topic("prices", cleanup="compact")
    store.create_queue("q", order="key")
    store.bind_queue("q", "prices", filter="amount >= 100")
    _compact(store)
    assert [each.offset for each in store.queue("q").receive(9)] == [1]
    events = [event for event, _ in _told(store, "prices", 0)]
    assert (events[0], events[-1], "refused" in events) == ("sent", "compacted", False)
    assert "compacted" not in [event for event, _ in _told(store, "prices", 1)]


def test_what_nobody_can_get_any_more_is_not_told_as_acknowledged(store: kmq.Store):
    store.create_topic("prices", cleanup="compact")
    store.create_queue("q", topics=["prices"])
    _compact(store)
    assert [each.offset for each in store.queue("q").receive(9)] == [1]
    *_, delivered, released, finished, compacted = _told(store, "prices", 0)
    assert (delivered[0], released[0]) == ("delivered", "released")
    assert compacted == ("compacted", {})
    assert finished == ("finished", {"queue": "q", "reason": NOT_THERE})


def test_a_retry_has_the_reason_that_was_given(store: kmq.Store):
    store.create_queue("q", backoff=(0,))
    with store.producer() as producer:
        producer.send_to_queue("q", b"1").result()
    queue = store.queue("q", prefetch=1)
    for reason in ("disk full", OSError("x" * 10_000), "\udc80", None):
        queue.receive()[0].nack(reason=reason)
    told = [facts.get("reason") for event, facts in _told(store, "queue:q", 0) if event != "sent"]
    assert told[1::2] == ["disk full", "OSError: " + "x" * 991, "?", None]


def test_an_answer_without_a_reason_has_the_bytes_that_it_always_had():
    entry = AnswerEntry(bytes(16), RETRY, 1, 2, (Run(bytes(16), 0, 7, 1, 1),))
    assert len(entry.payload()) == 40 + 40
    told = AnswerEntry(bytes(16), RETRY, 1, 2, entry.runs, reason="é")
    assert told.payload() == entry.payload() + "é".encode()
    assert list(decode_entries(encode_entry(told) + encode_entry(entry))) == [told, entry]
