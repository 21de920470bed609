"""The path of a message of a keyed queue: what each group of receivers did with it.

Finds: a message that was delivered or acknowledged and looks as if nobody ever had it, events of
another message or group, and an acknowledgement that nobody gave.
"""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.client.keyed.queues import KeyedQueues
from tests.support.clock import Clock
from tests.support.engine import Sent, open_engine, send_rows


@pytest.fixture
def queues(store: kmq.Store) -> KeyedQueues:
    """Two messages in one queue, with one of another queue between."""
    queues = store.keyed_queues("inbox")
    queues.put_batch(["a", "b", "a"], [b"1", b"x", b"2"])
    return queues


def _path(store: kmq.Store, offset: int) -> list[tuple[Any, ...]]:
    """What happened to a message after it was sent: event, group and delivery."""
    sent, *told = store.trace("inbox", 0, offset)
    assert sent.event == "sent"
    names = ("group", "delivery")
    return [(step.event, *(step.facts.get(name) for name in names)) for step in told]


def _collect_commits(store: kmq.Store) -> None:
    """Have all earlier commits collected."""
    store.create_topic("other")
    before = store.log.refresh().lsn
    for _ in range(2):
        store.seal()
        store.checkpoint()
        for _ in range(100):
            send_rows(store.log, "other", [Sent(b"k", bytes(200))])
        store.collect(grace=0)
    assert next(iter(store.commits())).lsn > before


def test_each_group_tells_its_deliveries_and_answers(store: kmq.Store, queues: KeyedQueues):
    (held,) = queues.receive("a")
    held.extend(60)
    held.nack()
    queues.receive("a", group="mail")
    queues.receive("a")[0].ack()
    assert _path(store, 0) == [
        ("delivered", "default", 1),
        ("extended", "default", 1),
        ("retried", "default", 1),
        ("delivered", "mail", 1),
        ("delivered", "default", 2),
        ("acked", "default", 2),
    ]
    assert (_path(store, 1), _path(store, 2)) == ([], [])
    queues.receive("a", 9, group="mail")
    assert _path(store, 2) == [("delivered", "mail", 1)]


def test_a_lock_that_ended_is_a_second_delivery(
    store: kmq.Store, queues: KeyedQueues, clock: Clock
):
    queues.receive("a", lock_timeout=30)
    clock.pass_seconds(31)
    queues.receive("a", lock_timeout=30)
    assert _path(store, 0) == [("delivered", "default", 1), ("delivered", "default", 2)]


def test_a_message_that_was_deleted_with_its_queue_is_not_told_as_acknowledged(
    store: kmq.Store, queues: KeyedQueues
):
    queues.receive("a")[0].nack()
    queues.delete("a")
    queues.put_batch(["a"], [b"3"])
    queues.receive("a")
    assert _path(store, 0)[-1] == ("finished", "default", 1)
    assert _path(store, 3) == [], "what deletes a queue is no message"
    assert _path(store, 4) == [("delivered", "default", 1)]


def test_what_a_group_finished_is_told_when_its_commits_are_gone():
    with open_engine() as store:
        queues = store.keyed_queues("inbox")
        queues.put_batch(["a", "b", "a"], [b"1", b"x", b"2"])
        queues.receive("a")[0].ack()
        (held,) = queues.receive("a")
        _collect_commits(store)
        assert _path(store, 0) == [("finished", "default", None)]
        assert _path(store, 2) == []
        held.ack()
        assert _path(store, 2) == [("finished", "default", None)]


def test_accounts_of_an_earlier_topic_and_other_programs_records_tell_nothing(
    store: kmq.Store, queues: KeyedQueues
):
    queues.receive("a")[0].ack()
    store.delete_topic("inbox")
    store.keyed_queues("inbox").put_batch(["a"], [b"new"])
    with store.producer() as producer:
        producer.send("inbox%default", b"no account", key="a").result()
    assert _path(store, 0) == []
