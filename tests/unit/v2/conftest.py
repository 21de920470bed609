"""A small array of Kmq's version 2, on each kind of store."""

from __future__ import annotations

import pytest

import kmq_spark as kmq
from kmq_spark.v2 import Kmq, KmqBroker, KmqProducer
from tests.unit.v2.arrays import TOPIC


@pytest.fixture
def broker(store: kmq.Store) -> KmqBroker:
    """A broker that has the topic, with room for five messages."""
    found = KmqBroker(store)
    found.create_topic(TOPIC, 5)
    return found


@pytest.fixture
def array(broker: KmqBroker) -> Kmq:
    """The topic, with a consumer `c`."""
    found = broker.find_kmq(TOPIC)
    assert found is not None
    found.register_consumer("c")
    return found


@pytest.fixture
def producer(broker: KmqBroker) -> KmqProducer:
    """A producer."""
    return broker.create_producer()
