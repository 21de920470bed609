"""How far receivers look ahead: what is held, or comes later, keeps nobody from what is behind it.

Finds: queues with a filter or an order that hand out nothing while many records are delayed.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.log.reading.reader import ChunkReader
from kmq_storage.log.state.queues.source import Source
from kmq_storage.queues import looking
from tests.support.clock import Clock
from tests.support.garbage import kept_garbage

_AHEAD = 10


@pytest.fixture
def queue(store: kmq.Store, monkeypatch: pytest.MonkeyPatch, request) -> kmq.Queue:
    """A queue whose records have to be looked at, by its order."""
    monkeypatch.setattr(looking, "_AHEAD", _AHEAD)
    store.create_topic("t")
    store.create_queue("q", order=request.param)
    store.bind_queue("q", "t", filter="n >= 0" if request.param == "none" else None)
    return store.queue("q")


def _send(store: kmq.Store, count: int, *, first: int = 0) -> None:
    with store.producer() as producer:
        for n in range(first, first + count):
            producer.send("t", b"%d" % n, key=b"%d" % n, properties={"n": n})


@pytest.mark.parametrize("queue", ["none", "key"], indirect=True)
def test_any_number_of_delayed_records_leave_others_to_be_had(store: kmq.Store, queue: kmq.Queue):
    with store.producer() as producer:
        for n in range(2 * _AHEAD):
            producer.send_to_queue("q", b"later", key=b"later %d" % n, delay=3600)
    _send(store, 1)
    assert [each.value for each in queue.receive(9)] == [b"0"]


@pytest.mark.parametrize("queue", ["none", "key"], indirect=True)
def test_any_number_of_held_records_leave_others_to_be_had(store: kmq.Store, queue: kmq.Queue):
    _send(store, 5 * _AHEAD)
    held = [each.value for _ in range(10) for each in queue.receive(5)]
    assert held == [b"%d" % n for n in range(5 * _AHEAD)]


@pytest.mark.parametrize("queue", ["key"], indirect=True)
def test_records_that_nobody_looked_at_are_looked_at_however_many_are_due(
    store: kmq.Store, queue: kmq.Queue
):
    later = datetime.now(UTC) + timedelta(hours=1)
    with store.producer() as producer:
        for n in range(2 * _AHEAD):
            producer.send_to_queue("q", b"%d" % n, key=b"%d" % n, expires_at=later)
    assert len(queue.receive(3 * _AHEAD)) == 2 * _AHEAD


@pytest.mark.parametrize("queue", ["key"], indirect=True)
def test_nobody_looks_far_behind_many_records_of_a_key_that_is_held(
    store: kmq.Store, queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looking, "_ROWS", 1)
    with store.producer() as producer:
        for _ in range(3 * _AHEAD):
            producer.send("t", b"v", key=b"one")
    assert len(queue.receive()) == 1
    assert store.queue("q").receive() == []
    (source,) = (s for s in store.log.state.queue("q").sources.values() if s.rows)
    assert source.next == _AHEAD + 1


@pytest.mark.parametrize("queue", ["none", "key"], indirect=True)
def test_who_has_an_old_state_of_the_queue_looks_by_the_new_one(
    store: kmq.Store, queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    _send(store, 3)
    old = deepcopy(store.log.refresh().queue("q"))
    assert len(queue.receive(3)) == 3
    looks, look = list[int](), looking._look

    def counted(*arguments: Any) -> int | None:
        looks.append(1)
        assert len(looks) < 10, "for ever"
        return look(*arguments)

    monkeypatch.setattr(looking, "_look", counted)
    looking.look_ahead(store.log, ChunkReader(store.log.files), old, 9)


@pytest.mark.parametrize(("order", "filtered"), [("key", None), ("none", "n >= 0")])
def test_what_can_be_had_is_not_asked_for_again_at_each_of_many_partitions(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, order: str, filtered: str | None
):
    store.create_topic("wide", partitions=30)
    store.create_queue("q", order=order)
    store.bind_queue("q", "wide", filter=filtered)
    with store.producer() as producer:
        for n in range(30):
            producer.send("wide", b"v", key=b"%d" % n, partition=n, properties={"n": n})
    asked, take = list[int](), Source.take
    monkeypatch.setattr(Source, "take", lambda self, *wish: asked.append(1) or take(self, *wish))
    queue = store.queue("q", prefetch=1)
    assert len(queue.receive(100)) == 30
    assert queue.receive(100) == []
    assert len(asked) < 10 * 30


@pytest.mark.parametrize("order", ["none", "key"])
def test_partitions_of_which_nothing_is_left_are_passed_at_once(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch, order: str
):
    store.create_topic("wide", partitions=50)
    store.create_queue("q", topics=["wide"], order=order)
    with store.producer() as producer:
        for n in range(60):
            producer.send("wide", b"v", key=b"%d" % n, partition=n if n < 50 else 7)
    queue = store.queue("q", prefetch=1)
    queue.ack(queue.receive(50))
    asked, take = list[int](), Source.take
    monkeypatch.setattr(Source, "take", lambda self, *wish: asked.append(1) or take(self, *wish))
    assert len(queue.receive()) == 1
    assert len(asked) < 20


@pytest.mark.parametrize("order", ["none", "key"])
def test_dead_letters_for_which_there_is_no_room_leave_others_to_be_had(
    store: kmq.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, order: str
):
    monkeypatch.setattr(looking, "_AHEAD", 10)
    store.create_topic("t")
    store.create_queue("dead", capacity=1)
    limits = {"max_deliveries": 1, "dead_letter": "dead", "lock_timeout": 1.0}
    store.create_queue("q", order=order, **limits)
    store.bind_queue("q", "t", filter="n >= 0")
    _send(store, 20)
    queue = store.queue("q", prefetch=1)
    assert len(queue.receive(20)) == 20
    clock.pass_seconds(60)
    _send(store, 10, first=20)
    assert len(queue.receive(20)) == 10


@pytest.mark.parametrize("order", ["none", "key"])
def test_any_number_of_expired_records_leave_others_to_be_had(
    store: kmq.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, order: str
):
    monkeypatch.setattr(looking, "_AHEAD", 10)
    store.create_topic("t")
    store.create_queue("q", order=order)
    store.bind_queue("q", "t", filter="n >= 0" if order == "none" else None)
    soon = datetime.now(UTC) + timedelta(hours=1)
    with store.producer() as producer:
        for n in range(20):
            producer.send_to_queue("q", b"old", key=b"%d" % n, expires_at=soon)
    queue = store.queue("q", prefetch=1)
    queue.ack(queue.receive(1))
    clock.pass_seconds(7200)
    _send(store, 1)
    assert len(queue.receive(5)) == 1


def test_a_receiver_has_no_more_to_do_the_more_other_queues_there_are(store: kmq.Store):
    store.create_queue("q")
    queue = store.queue("q", prefetch=1)

    def calls() -> int:
        found = 0

        def count(_frame: object, event: str, _of: object) -> None:
            nonlocal found
            found += event == "call"

        with kept_garbage():  # its calls are not the receiver's
            sys.setprofile(count)
            try:
                queue.receive()
            finally:
                sys.setprofile(None)
        return found

    calls()
    before = calls()
    for number in range(200):
        store.create_queue(f"other{number}")
    calls()
    assert calls() < before + 100


@pytest.mark.parametrize(
    ("order", "filtered"), [("none", None), ("strict", None), ("key", None), ("none", "n >= 0")]
)
def test_a_partition_comes_soon_though_others_have_more_than_is_asked_for(
    store: kmq.Store, order: str, filtered: str | None
):
    store.create_topic("wide", partitions=4)
    store.create_queue("q", order=order)
    store.bind_queue("q", "wide", filter=filtered)
    with store.producer() as producer:
        for n in range(400):
            partition = n % 3 if n else 3
            producer.send("wide", b"%d" % n, b"%d" % n, partition=partition, properties={"n": n})
    queue, partitions = store.queue("q", prefetch=1), list[int]()
    for _ in range(5):  # its own log has a turn, too
        held = queue.receive(10)
        queue.ack(held)
        partitions += [each.partition for each in held]
    assert set(partitions) == {0, 1, 2, 3}


@pytest.mark.parametrize("queue", ["key"], indirect=True)
def test_of_many_partitions_few_records_each_are_looked_at(
    store: kmq.Store, queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(looking, "_AHEAD", 1_000)
    monkeypatch.setattr(looking, "_ROWS", 32)
    monkeypatch.setattr(looking, "_FEW", 1)
    store.create_topic("wide", partitions=16)
    store.bind_queue("q", "wide")
    with store.producer() as producer:
        for n in range(16 * 40):
            producer.send("wide", b"v", b"%d" % n, partition=n % 16)
    for _ in range(40):
        assert len(queue.receive()) == 1
    sources = store.log.state.queue("q").sources.values()
    assert sum(source.rows.live for source in sources) < 40 + 2 * 32
