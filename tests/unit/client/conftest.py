"""Stores that many tests of the client begin with."""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from tests.unit.client.typed import SCHEMA


@pytest.fixture
def shop(store: kmq.Store) -> kmq.Store:
    """Topics `a`, `b` and `c` with one partition each."""
    for topic in "abc":
        store.create_topic(topic)
    return store


@pytest.fixture
def queues(store: kmq.Store) -> kmq.KeyedQueues:
    """The queues of an empty topic."""
    return store.keyed_queues("inbox")


@pytest.fixture
def typed(store: kmq.Store) -> kmq.Store:
    """A store with a typed topic `t` of two partitions."""
    store.create_topic("t", schema=SCHEMA, partitions=2)
    return store
