"""Finished records of a queue behind one that is not finished for long.

Finds: a log that keeps all of them, unfinished records that go with them, and work done for little.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import kmq_spark as kmq
from kmq_storage.copying.topics import copy_topics
from kmq_storage.maintenance.maintain import tidy
from kmq_storage.maintenance.manner import PLAIN

LONG = timedelta(days=365)
OWN = "queue:q"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kmq.Store]:
    with kmq.open(tmp_path / "store", durability="os") as store:
        yield store


def _send(store: kmq.Store, values: range, delayed: int | None = None) -> None:
    """One segment of these values, of which one is delayed."""
    with store.producer() as producer:
        for n in values:
            producer.send_to_queue("q", b"%d" % n, delay=LONG if n == delayed else None)
    store.seal()


def _finish(store: kmq.Store, rows: int) -> None:
    queue = store.queue("q", prefetch=1)
    done = queue.receive(rows)
    assert len(done) == rows
    queue.ack(done)


def _kept(store: kmq.Store) -> int:
    return store.describe_topic(OWN).rows


def _tidied(store: kmq.Store) -> int:
    """How many records maintenance dropped."""
    return tidy(store.log, manner=PLAIN)[1].dropped


def _values(store: kmq.Store) -> list[bytes]:
    return [each.value for each in store.queue("q").receive(1_000)]


@pytest.mark.parametrize("order", ["none", "key"])
def test_one_record_that_is_delayed_for_long_keeps_no_finished_ones(store: kmq.Store, order: str):
    store.create_queue("q", order=order)
    _send(store, range(100), delayed=0)
    _send(store, range(100, 200))
    _send(store, range(200, 300))
    _finish(store, 250)
    assert _tidied(store) == 99 + 100
    assert (_kept(store), _tidied(store)) == (1 + 100, 0)
    assert store.verify(deep=True).ok
    _finish(store, 49)
    assert (_tidied(store), _kept(store)) == (100, 1)
    (left,) = store.queue("q").state().to_pylist()
    assert (left["offset"], left["state"]) == (0, "delayed")


def test_what_is_not_finished_stays_whatever_its_state_is(store: kmq.Store, tmp_path: Path):
    store.create_queue("q", max_deliveries=2)
    _send(store, range(100), delayed=3)
    queue = store.queue("q", prefetch=1)
    held, failed, *done = queue.receive(99)
    failed.nack(0)
    queue.ack(done)
    _send(store, range(100, 110))
    assert _tidied(store) == 97
    held.ack()
    assert _values(store) == [failed.value, *(b"%d" % n for n in range(100, 110))]
    with kmq.open(tmp_path / "copy", durability="os") as copy:
        copy_topics(store.log, copy.log)
        assert (copy.queues()[0].stats.delayed, _kept(copy)) == (1, _kept(store))


def test_a_segment_of_which_much_is_left_is_not_written_again(store: kmq.Store):
    store.create_queue("q")
    _send(store, range(80))
    queue = store.queue("q", prefetch=1)
    held = queue.receive(80)
    queue.ack(held[11:])
    assert (_tidied(store), _kept(store)) == (0, 80)
    held[5].ack()
    assert (_tidied(store), _kept(store)) == (70, 10)
