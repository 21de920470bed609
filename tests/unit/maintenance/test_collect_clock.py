"""Whose clock counts the grace time. Finds a host that is years off, and deletes too early."""

from __future__ import annotations

import pytest

from kmq_storage.environment import SYSTEM
from tests.support.dying_bucket import fill, open_bucket, shared_names
from tests.support.memory_bucket import MemoryBucket

HOUR = 3_600_000_000


@pytest.mark.parametrize("years", [-40, 40])
def test_the_grace_time_is_counted_by_the_clock_of_the_store(years: int):
    """However wrong the clock of this host is."""
    now = SYSTEM.now_us() + years * 365 * 24 * HOUR
    bucket = MemoryBucket("memory-bucket://collected", clock=lambda: now)
    with open_bucket(bucket, create=True) as store:
        fill(store).seal()
        old = shared_names(bucket)
        store.compact("t")
        store.checkpoint()
        store.collect(grace=HOUR / 1e6)
        assert old < shared_names(bucket)
        now += 2 * HOUR
        store.collect(grace=HOUR / 1e6)
        assert not old & shared_names(bucket)
