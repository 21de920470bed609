"""A maintainer whose clock is ahead. Finds records that are given up before their time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kmq_spark.client.store import Store
from kmq_storage import limits
from kmq_storage.environment import SYSTEM
from tests.support.dying_bucket import open_bucket
from tests.support.engine import Sent, open_engine, rows_of, send_rows
from tests.support.memory_bucket import MemoryBucket

YEAR = 365 * 86_400
ROWS = [Sent(b"k", b"old"), Sent(b"k", None), Sent(b"other", b"value")]


@pytest.fixture(params=["disk", "bucket"])
def store(request: pytest.FixtureRequest) -> Store:
    """A store whose host takes everything for a year older than it is."""
    if request.param == "disk":
        store = open_engine()
    else:
        store = open_bucket(MemoryBucket("memory-bucket://ages", clock=SYSTEM.now_us), create=True)
    store.create_topic("t", retention=3600.0)
    store.create_topic("c", cleanup="compact")
    for topic in ("t", "c"):
        send_rows(store.log, topic, ROWS)
    return store


def _ahead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(SYSTEM, now_ns=lambda: SYSTEM.now_ns() + YEAR * 10**9)
    monkeypatch.setattr(store.log, "environment", later)


def test_a_host_whose_clock_is_ahead_trims_nothing_before_its_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    _ahead(store, monkeypatch)
    assert store.maintain().trimmed.starts == {}
    assert len(rows_of(store, "t")) == len(ROWS)


def test_a_host_whose_clock_is_ahead_drops_no_tombstone_before_its_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    _ahead(store, monkeypatch)
    store.compact("c")
    assert list(rows_of(store, "c")) == [1, 2]
    monkeypatch.setattr(limits, "TOMBSTONE_DELAY", -2.0)
    store.compact("c")
    assert list(rows_of(store, "c")) == [2]
