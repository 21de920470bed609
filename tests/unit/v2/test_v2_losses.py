"""Arrays of which a repair cut messages out: each consumer is told once, and goes on behind.

Finds: an id that meets the same loss at each poll, for ever, or passes over it without a word.
"""

from __future__ import annotations

from typing import Any

import pytest

import kmq_spark as kmq
from kmq_spark.v2 import Kmq, KmqProducer
from kmq_storage.format.layout_entries import GapEntry
from kmq_storage.log.binding.binding import Unit
from tests.unit.v2.arrays import TOPIC, bodies, run_in_threads, said


@pytest.fixture(autouse=True)
def repaired(array: Kmq, producer: KmqProducer, store: kmq.Store) -> None:
    """Messages 0 to 4, without 1 and 2."""
    for message in said(*range(5)):
        producer.send(TOPIC, message)
    topic, lsn = store.describe_topic(TOPIC).topic_id.bytes, store.log.refresh().lsn
    gap = GapEntry(topic, 0, 1, 3, 2, 2, lsn, "damaged")  # as a repair does it
    store.log.commit([Unit((gap,))])
    store.log.refresh()


def test_a_poll_that_meets_a_loss_says_so_once_and_the_next_one_goes_on(
    array: Kmq, store: kmq.Store
):
    for consumer_id in ("c", "another"):
        array.register_consumer(consumer_id)
        first = array.poll(consumer_id)
        assert first is not None
        assert first.body == 0
        with pytest.raises(kmq.DataLossError, match="offsets 1 to 2 were lost"):
            array.poll(consumer_id, timeout_ms=1000)
        assert store.describe_group(consumer_id).committed == {TOPIC: {0: 3}}
        assert bodies(array, consumer_id) == [3, 4]


def test_of_many_polls_with_one_id_one_is_told(array: Kmq):
    found, told = list[Any](), list[str]()

    def poll(_: int) -> None:
        while True:
            try:
                message = array.poll("c")
            except kmq.DataLossError as error:
                told.append(error.message)
                continue
            if message is None:
                return
            found.append(message.body)

    run_in_threads(poll, 4)
    assert (sorted(found), len(told)) == ([0, 3, 4], 1)
