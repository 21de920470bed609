"""Ctrl-C in a queue's `receive`: what nobody got waits for no lock to end."""

from __future__ import annotations

import pytest

import kmq_spark as kmq


def test_what_a_receive_was_reading_when_it_was_interrupted_is_free_at_once(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    store.create_queue("q")
    with store.producer() as producer:
        for value in (b"a", b"b"):
            producer.send_to_queue("q", value)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with store.queue("q") as queue, monkeypatch.context() as patch:
        patch.setattr("kmq_spark.client.queue.deliveries_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.receive(2)
    found = store.queue("q").receive(2)
    assert [(each.value, each.delivery_count) for each in found] == [(b"a", 1), (b"b", 1)]
