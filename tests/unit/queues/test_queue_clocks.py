"""Queues where the log's time is ahead of a receiver's clock, since another one's had jumped.

Finds: seconds that count from a clock that is behind, and so are over when they begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.opening import open_store
from kmq_storage.environment import SYSTEM


@pytest.fixture
def late(tmp_path: Path) -> Iterator[kmq.Store]:
    """A store whose newest commit is of an hour that has not come, with a record in queue `q`."""
    ahead = replace(SYSTEM, now_ns=lambda: SYSTEM.now_ns() + 3600 * 10**9)
    url = tmp_path / "store"
    with open_store(url, durability="os", environment=ahead) as jumped:
        jumped.create_queue("q", max_deliveries=9)
        with jumped.producer() as producer:
            producer.send_to_queue("q", b"1").result()
    with kmq.open(url, durability="os") as store:
        yield store


def test_an_extended_lock_is_held(late: kmq.Store):
    queue = late.queue("q")
    (held,) = queue.receive()
    held.extend(20)
    assert queue.receive() == []
    held.ack()


def test_who_failed_waits(late: kmq.Store):
    queue = late.queue("q")
    queue.receive()[0].nack(20)
    assert (queue.receive(), queue.stats().delayed) == ([], 1)


def test_a_delayed_record_is_not_there_yet(late: kmq.Store):
    with late.producer() as producer:
        producer.send_to_queue("q", b"2", delay=20).result()
    assert [each.value for each in late.queue("q").receive(9)] == [b"1"]
