"""How many bytes a receiver holds ahead of its calls.

Finds: a prefetch that goes by count alone and takes gigabytes of large records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_spark.client.queues import ahead

MOST, LARGE, RECORDS = 1_000_000, 100_000, 60
#: More calls than it takes to be fast.
FAST = 40


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kmq.Store]:
    """Its queue has small records first; nobody counts as slow."""
    monkeypatch.setattr(ahead, "PATIENCE", 1e6)
    monkeypatch.setattr(ahead, "_PAUSE", 1e6)
    monkeypatch.setattr(ahead, "_BYTES", MOST)
    with kmq.open(str(tmp_path / "store"), durability="os") as here:
        here.create_queue("q", lock_timeout=3_600)
        _send(here, [b"small"] * FAST)
        yield here


def _send(store: kmq.Store, values: list[bytes]) -> None:
    with store.producer() as producer:
        for value in values:
            producer.send_to_queue("q", value)


def _held(queue: kmq.Queue) -> int:
    return sum(len(each.value or b"") for each in queue._ahead._ready)


def _finish(queue: kmq.Queue, rows: int) -> list[int]:
    """Receive and acknowledge so many one by one; the bytes held with each."""
    held = []
    for _ in range(rows):
        (one,) = queue.receive()
        held.append(len(one.value or b"") + _held(queue))
        one.ack()
    return held


@pytest.mark.parametrize("together", [True, False])
def test_of_large_records_as_many_as_fit_are_held_ahead(store: kmq.Store, together: bool):
    for values in [[bytes(LARGE)] * RECORDS] if together else [[bytes(LARGE)]] * RECORDS:
        _send(store, values)
    with store.queue("q") as queue:
        _finish(queue, FAST)
        before = store.log.refresh().lsn
        held = _finish(queue, RECORDS)
        assert MOST // 2 < max(held) <= MOST
        assert store.log.refresh().lsn - before < RECORDS // 4
        assert queue.receive() == []


def test_a_record_larger_than_what_may_be_held_comes_alone(store: kmq.Store):
    _send(store, [bytes(MOST + 1)] * 3 + [b"small"])
    with store.queue("q") as queue:
        _finish(queue, FAST)
        assert _finish(queue, 4)[:3] == [MOST + 1] * 3


def test_what_one_call_asks_for_comes_however_large(store: kmq.Store):
    _send(store, [bytes(LARGE)] * RECORDS)
    with store.queue("q") as queue:
        _finish(queue, FAST)
        queue._ahead.settle()
        assert len(queue.receive(RECORDS // 2)) == RECORDS // 2
        assert not _held(queue)
