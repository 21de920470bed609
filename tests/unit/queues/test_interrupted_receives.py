"""Ctrl-C in a queue's `receive`: what nobody got waits for no lock to end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kmq_spark as kmq
from kmq_storage.format.queue_entries import AcquireEntry
from kmq_storage.queues import handing


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def queue(store: kmq.Store) -> kmq.Queue:
    """A queue with two records."""
    store.create_queue("q")
    with store.producer() as producer:
        for value in (b"a", b"b"):
            producer.send_to_queue("q", value)
    return store.queue("q")


@pytest.mark.parametrize(
    ("receive", "reads"),
    [
        (lambda queue: queue.receive(2), "deliveries_of"),
        (lambda queue: queue.receive_arrow(), "slices_of"),
    ],
)
def test_what_a_receive_was_reading_when_it_was_interrupted_is_free_at_once(
    store: kmq.Store,
    queue: kmq.Queue,
    receive: Callable[[kmq.Queue], object],
    reads: str,
    monkeypatch: pytest.MonkeyPatch,
):
    with monkeypatch.context() as patch:
        patch.setattr(f"kmq_spark.client.queues.queue.{reads}", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            receive(queue)
    found = store.queue("q").receive(2)
    assert [(each.value, each.delivery_count) for each in found] == [(b"a", 1), (b"b", 1)]


def test_what_a_receive_was_to_look_at_when_it_was_interrupted_is_free_at_once(
    store: kmq.Store, queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    acquire = handing.try_acquire

    def acquired(*given: Any, **options: Any) -> AcquireEntry | None:
        found = acquire(*given, **options)
        patch.setattr(store.log, "refresh", _interrupted)
        return found

    for receive in (lambda: queue.receive(2), queue.receive_arrow):
        with monkeypatch.context() as patch:
            patch.setattr(handing, "try_acquire", acquired)
            with pytest.raises(KeyboardInterrupt):
                receive()
    found = store.queue("q").receive(2)
    assert [(each.value, each.delivery_count) for each in found] == [(b"a", 1), (b"b", 1)]


def test_what_a_receive_had_written_when_it_was_interrupted_is_free_at_once(
    store: kmq.Store, queue: kmq.Queue, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(store.log, "sync", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.receive(2)
    found = store.queue("q").receive(2)
    assert [(each.value, each.delivery_count) for each in found] == [(b"a", 1), (b"b", 1)]


def test_what_a_receive_of_a_keyed_queue_had_written_when_it_was_interrupted_is_free_at_once(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    inboxes = store.keyed_queues("k")
    inboxes.put_batch(["a", "a"], [b"1", b"2"])
    inboxes.receive("a")[0].nack()
    syncs = iter([_interrupted])

    def sync(lsn: int, then: Callable[[int], None] = store.log.sync) -> None:
        next(syncs, then)(lsn)

    with monkeypatch.context() as patch:
        patch.setattr(store.log, "sync", sync)
        with pytest.raises(KeyboardInterrupt):
            inboxes.receive("a", 2)
    found = inboxes.receive("a", 2)
    assert [(each.value, each.delivery_count) for each in found] == [(b"1", 2), (b"2", 1)]
