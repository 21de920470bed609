"""Stores for the tests of orderly consumers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kmq_spark as kmq
from tests.unit.orderly.listening import Shop, fill


@pytest.fixture
def two(store: kmq.Store) -> kmq.Store:
    """Topic `t` with two partitions of four records each."""
    store.create_topic("t", partitions=2)
    fill(store, {0: 4, 1: 4})
    return store


@pytest.fixture
def line(store: kmq.Store) -> kmq.Store:
    """Topic `t` with one partition of four records."""
    store.create_topic("t")
    fill(store, {0: 4})
    return store


@pytest.fixture
def shop() -> Iterator[Shop]:
    """Topic `t` with two partitions of ten records each."""
    found = Shop()
    with found.store as store:
        store.create_topic("t", partitions=2)
        fill(store, {0: 10, 1: 10})
        yield found
