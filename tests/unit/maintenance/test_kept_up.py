"""Programs that only consume keep a store up, too: what they commit doesn't pile up."""

from __future__ import annotations

import gc
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import kmq_spark as kmq
from kmq_spark import openmessaging
from kmq_spark.v2 import KmqBroker
from kmq_storage import limits
from kmq_storage.maintenance import maintain as module
from kmq_storage.maintenance.collect import try_collect
from kmq_storage.maintenance.last_look import LastLook
from kmq_storage.maintenance.maintain import maintain
from kmq_storage.objects import memory
from kmq_storage.objects.memory import MemoryDisk
from tests.support.clock import Clock
from tests.support.engine import Sent, send_rows
from tests.support.storage import open_log
from tests.support.waiting import until

Opens = Callable[[kmq.Store], AbstractContextManager[Any] | None]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[kmq.Store]:
    """A store with a topic whose records are soon too old, and a queue."""
    monkeypatch.setattr(limits, "MAINTAIN_INTERVAL", 0.002)
    url = tmp_path / "store"
    with kmq.open(url, durability="os", environment=clock.environment) as store:
        store.create_topic("t", retention=0.05)
        store.create_queue("q", topics=["t"])
        yield store


def _member(store: kmq.Store) -> AbstractContextManager[Any]:
    return store.consumer("g", topics=["t"])


def _receiver(store: kmq.Store) -> AbstractContextManager[Any]:
    return store.queue("q")


def _orderly(store: kmq.Store) -> AbstractContextManager[Any]:
    return store.orderly_consumer("g", "t", lambda _records, _context: kmq.OrderlyStatus.SUCCESS)


def _inboxes(store: kmq.Store) -> None:
    store.keyed_queues("inboxes")


def _array(store: kmq.Store) -> None:
    KmqBroker(store).create_consumer().subscribe("t")


def _pull(store: kmq.Store) -> AbstractContextManager[Any]:
    settings = openmessaging.KeyValue().put("STORE_PATH", store.url)
    return openmessaging.PullConsumer(settings)


@pytest.mark.parametrize("opens", [_member, _receiver, _orderly, _inboxes, _array, _pull])
def test_who_only_consumes_maintains_the_store(store: kmq.Store, opens: Opens):
    opened = opens(store)
    send_rows(store.log, "t", [Sent(None, b"v")] * 5)
    until(lambda: store.log.refresh().topic("t").offsets() == {0: (5, 5)})
    if opened is not None:
        opened.__exit__(None, None, None)


def _reader(store: kmq.Store) -> None:
    store.consumer(topics=["t"])


def _read_only(store: kmq.Store) -> None:
    kmq.open(store.url, read_only=True).queue("q")


def _told_not_to(store: kmq.Store) -> None:
    kmq.open(store.url, maintenance=False).consumer("g", topics=["t"])


@pytest.mark.parametrize("opens", [_reader, _read_only, _told_not_to])
def test_who_only_reads_or_is_told_not_to_maintains_nothing(store: kmq.Store, opens: Opens):
    before = {*threading.enumerate()}
    opens(store)
    assert "kmq-maintenance" not in {each.name for each in {*threading.enumerate()} - before}


def test_a_consumer_looks_less_often_than_a_producer(
    store: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "MAINTAIN_INTERVAL", 0.2)
    _member(store)
    send_rows(store.log, "t", [Sent(None, b"v")] * 5)
    assert store._maintenance is not None
    assert store._maintenance._every == 6
    store.producer()
    assert store._maintenance._every == 1
    until(lambda: store.log.refresh().topic("t").offsets() == {0: (5, 5)})


@pytest.fixture
def timed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> kmq.Store:
    """A store in memory whose files have the dates of the clock; log files have 64 KiB."""
    monkeypatch.setattr(memory, "SYSTEM", clock.environment)
    disk = MemoryDisk(f"memory://{uuid.uuid4().hex}")
    log = open_log(disk, durable=False, file_bytes=65_536, environment=clock.environment)
    store = kmq.Store(log, maintenance=False)
    store.create_topic("t")
    return store


def test_where_commits_come_all_the_time_what_can_go_is_looked_for_ten_times_in_a_grace_time(
    clock: Clock, timed: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """Each look reads all commits of that time."""
    monkeypatch.setattr(limits, "CHECKPOINT_COMMITS", 1)
    look = Mock(side_effect=try_collect)
    monkeypatch.setattr(module, "try_collect", look)
    last = LastLook()
    for _ in range(int(limits.COLLECT_GRACE) // 10):
        send_rows(timed.log, "t", [Sent(None, b"v")])
        maintain(timed.log, last)
        clock.pass_seconds(10)
    assert look.call_count == 10


def test_hours_of_offset_commits_of_many_groups_leave_no_more_than_one(
    clock: Clock, timed: kmq.Store, monkeypatch: pytest.MonkeyPatch
):
    """By the default times; there are a thousandth of the commits, and so are the sizes."""
    groups, minutes = 100, 60
    monkeypatch.setattr(limits, "CHECKPOINT_COMMITS", 10)
    send_rows(timed.log, "t", [Sent(None, b"v")] * (3 * minutes))
    members = [timed.consumer(f"g{number}", topics=["t"]) for number in range(groups)]
    last, sizes = LastLook(), []
    for minute in range(3 * minutes):
        for member in members[minute % 6 :: 6]:
            member.commit({"t": {0: minute + 1}})
        clock.pass_seconds(60)
        maintain(timed.log, last)
        sizes.append(sum(file.length for file in timed.log.files.walk("")))
    assert max(sizes[minutes:]) <= 1.1 * max(sizes[:minutes])
    assert timed.describe_group("g5").committed == {"t": {0: 3 * minutes}}


def test_the_state_of_a_checkpoint_is_freed_without_the_garbage_collector(timed: kmq.Store):
    """A million records of a queue are 42 MB of it, and the collector comes after many of them."""
    timed.create_queue("q")
    gc.disable()
    try:
        state, _ = timed.log.snapshot()
        seen = weakref.ref(state)
        del state
        assert seen() is None
    finally:
        gc.enable()
