"""Mistaken input to every call of a transaction: the contracted error, at the call.

Finds: errors that leave a part of the transaction or take away what was sent before, and commits
that pass over what can't be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import kmq_spark as kmq

Call = Callable[[Any], object]

#: Calls that no store could take.
INVALID: dict[str, Call] = {
    "a topic without name": lambda tx: tx.send("", b"v"),
    "a topic that is no text": lambda tx: tx.send(5, b"v"),
    "a value that is no bytes": lambda tx: tx.send("t", 5),
    "a key that is no bytes": lambda tx: tx.send("t", b"v", 5.0),
    "a negative partition": lambda tx: tx.send("t", b"v", partition=-1),
    "a partition that is no number": lambda tx: tx.send("t", b"v", partition="0"),
    "headers that are no pairs": lambda tx: tx.send("t", b"v", headers=5),
    "a time that is no time": lambda tx: tx.send("t", b"v", timestamp="soon"),
    "a batch of text": lambda tx: tx.send_batch("t", "text"),
    "a batch of numbers": lambda tx: tx.send_batch("t", [b"v", 5]),
    "no arrow": lambda tx: tx.send_arrow("t", "text"),
    "arrow of other columns": lambda tx: tx.send_arrow("t", pa.table({"wrong": [1]})),
    "a queue without name": lambda tx: tx.send_to_queue("", b"v"),
    "a priority above 9": lambda tx: tx.send_to_queue("q", b"v", priority=12),
    "a negative delay": lambda tx: tx.send_to_queue("q", b"v", delay=-1),
    "an ack of text": lambda tx: tx.ack("text"),
    "an ack of nothing": lambda tx: tx.ack(None),
    "an ack of numbers": lambda tx: tx.ack([5]),
    "an ack of other columns": lambda tx: tx.ack(pa.table({"wrong": [1]})),
    "offsets of no consumer": lambda tx: tx.commit_offsets("g"),
    "offsets that are text": lambda tx: tx.send_offsets("t", "g"),
    "offsets without partitions": lambda tx: tx.send_offsets({"t": 5}, "g"),
    "offsets that are no numbers": lambda tx: tx.send_offsets({"t": {0: "1"}}, "g"),
    "a group without name": lambda tx: tx.send_offsets({"t": {0: 0}}, ""),
    "a group that is no text": lambda tx: tx.send_offsets({"t": {0: 0}}, None),
}
#: Calls that name a topic that isn't there.
MISSING: dict[str, Call] = {
    "offsets of no such topic": lambda tx: tx.send_offsets({"missing": {0: 0}}, "g"),
    "offsets of no such partition": lambda tx: tx.send_offsets({"t": {9: 0}}, "g"),
}
#: Calls about what may be there, or not any more, when the transaction commits; and its message.
LATE: dict[str, tuple[Call, str]] = {
    "no such partition": (lambda tx: tx.send("t", b"v", partition=9), "partitions 0 to 0, not 9"),
    "no such queue": (lambda tx: tx.send_to_queue("missing", b"v"), r"Queue\[missing\] doesn't"),
    "a negative offset": (lambda tx: tx.send_offsets({"t": {0: -1}}, "g"), "offset -1 is outside"),
    "a later offset": (lambda tx: tx.send_offsets({"t": {0: 9}}, "g"), "offset 9 is outside"),
}
BAD = [pytest.param(kmq.InvalidRequestError, call, id=name) for name, call in INVALID.items()] + [
    pytest.param(kmq.NotFoundError, call, id=name) for name, call in MISSING.items()
]


@pytest.fixture
def store(store: kmq.Store) -> kmq.Store:
    """A store with a topic and a queue."""
    store.create_topic("t")
    store.create_queue("q")
    return store


@pytest.mark.parametrize(("error", "call"), BAD)
def test_bad_input_is_refused_at_the_call_and_nothing_of_the_transaction_is_stored(
    store: kmq.Store, error: type[kmq.KmqError], call: Call
):
    before = store.log.refresh().lsn
    with store.producer(linger=0.0) as producer:
        with pytest.raises(error), producer.transaction() as tx:
            tx.send("t", b"good")
            call(tx)
        assert store.log.refresh().lsn == before


@pytest.mark.parametrize(("error", "call"), BAD)
def test_whoever_takes_the_error_commits_what_was_good(
    store: kmq.Store, error: type[kmq.KmqError], call: Call
):
    with store.producer(linger=0.0) as producer:
        with producer.transaction() as tx:
            tx.send("t", b"good")
            with pytest.raises(error):
                call(tx)
        values: list[Any] = store.read("t").read_all().column("value").to_pylist()
        assert values == [b"good"]
        assert "g" not in store.groups()


@pytest.mark.parametrize(("call", "told"), LATE.values(), ids=LATE)
def test_what_is_not_there_at_the_commit_aborts_the_whole_and_is_named(
    store: kmq.Store, call: Call, told: str
):
    before = store.log.refresh().lsn
    with store.producer(linger=0.0) as producer:
        with (
            pytest.raises(kmq.TransactionAbortedError, match=told),
            producer.transaction() as tx,
        ):
            sent = tx.send("t", b"good")
            call(tx)
        with pytest.raises(kmq.TransactionAbortedError):
            sent.result(10)
        assert store.log.refresh().lsn == before
