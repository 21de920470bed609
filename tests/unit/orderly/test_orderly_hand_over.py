"""Partitions of orderly consumers that go to other members, or are lost, while a listener has them.

Finds: a hand-over before the listener has answered and that is committed, one that holds up other
partitions, a partition that stays and stands still, one that is in the listener twice at a time.
"""

from __future__ import annotations

import pytest

from tests.support.waiting import until
from tests.unit.orderly.listening import (
    Gate,
    Listener,
    Shop,
    fill,
    leaving,
    standing,
    taken_over,
)


@pytest.fixture
def wide(shop: Shop) -> Shop:
    """Topic `t` with four partitions of ten records each, of which a second member gets two."""
    shop.store.add_partitions("t", 4)
    fill(shop.store, {2: 10, 3: 10})
    return shop


def test_a_partition_goes_to_another_member_when_the_listener_has_answered_and_that_is_committed(
    shop: Shop,
):
    gate = Gate()
    first, second = Listener(gate), Listener()
    with shop.orderly(first) as consumer:
        until(lambda: len(first.calls) == 2)  # both partitions are in the listener
        with shop.orderly(second):
            until(lambda: leaving(consumer) == [1])
            assert second.calls == []
            gate.opened.set()
            until(lambda: len(first.calls) + len(second.calls) == 20)
    assert shop.committed() == {0: 10, 1: 10}
    for partition in (0, 1):
        assert first.offsets(partition) + second.offsets(partition) == list(range(10))
    assert second.calls


def test_while_a_hand_over_waits_for_its_listener_other_partitions_are_read_and_committed(
    shop: Shop,
):
    gate = Gate(1)
    first, second = Listener(gate), Listener()
    with shop.orderly(first) as consumer:
        until(lambda: first.offsets(1))
        with shop.orderly(second):
            until(lambda: leaving(consumer) == [1])
            fill(shop.store, {0: 2_000})  # more than what was read ahead
            until(lambda: shop.committed() == {0: 2_010})
            assert second.calls == []
            gate.opened.set()
            until(lambda: shop.committed() == {0: 2_010, 1: 10})
    assert first.offsets(0) == list(range(2_010))
    assert first.offsets(1) + second.offsets(1) == list(range(10))


def test_of_partitions_that_shall_go_those_that_the_listener_is_done_with_go_first(wide: Shop):
    gate = Gate(2)
    first, second = Listener(gate), Listener()
    with wide.orderly(first) as consumer:
        until(lambda: len(first.calls) == 31)  # all but what stands behind the gate
        with wide.orderly(second):
            until(lambda: leaving(consumer) == [2])
            fill(wide.store, {3: 10})
            until(lambda: second.offsets(3) == list(range(10, 20)))
            assert second.offsets(2) == []
            gate.opened.set()
            until(lambda: len(second.offsets(2)) == 9)
    assert first.offsets(2) + second.offsets(2) == list(range(10))


def test_a_partition_that_stays_after_all_goes_on_where_it_was(shop: Shop):
    gate = Gate(1)
    first = Listener(gate)
    with shop.orderly(first) as consumer:
        until(lambda: first.offsets(1))
        with shop.orderly(Listener()):
            until(lambda: leaving(consumer) == [1])
        until(lambda: leaving(consumer) == [])
        gate.opened.set()
        until(lambda: shop.committed() == {0: 10, 1: 10})
    assert first.offsets(1) == list(range(10))


def test_one_that_stays_after_all_goes_on_though_its_listener_answered_meanwhile(shop: Shop):
    gate = Gate(1)
    first = Listener(gate)
    with shop.orderly(first) as consumer, shop.store.consumer("g") as second:
        until(lambda: first.offsets(1))
        second.subscribe(["t"])
        until(lambda: leaving(consumer) == [1])
        with standing(consumer):  # nothing is given away meanwhile
            gate.opened.set()
            until(lambda: not consumer.process_queues()["t"][1].is_scheduled)
            second.close()
        until(lambda: shop.committed() == {0: 10, 1: 10})
    assert first.offsets(1) == list(range(10))


def test_while_the_listener_has_a_partition_that_was_lost_others_go_on(shop: Shop):
    shop.store.create_topic("u")
    fill(shop.store, {0: 1}, topic="u")
    gate = Gate("u")
    first = Listener(gate)
    with shop.store.orderly_consumer("g", ["t", "u"], first) as consumer:
        until(lambda: len(first.calls) == 21)
        shop.store.delete_topic("u")
        until(lambda: "u" not in consumer.process_queues())
        fill(shop.store, {0: 2_000, 1: 2_000})
        until(lambda: shop.committed() == {0: 2_010, 1: 2_010})
        gate.opened.set()


def test_who_comes_back_begins_where_the_group_is_and_never_has_a_partition_twice_at_a_time(
    shop: Shop,
):
    gate = Gate(0)
    listener = Listener(gate)
    with shop.orderly(listener) as late:
        until(lambda: len(listener.calls) == 11)  # all but what stands behind the gate
        with shop.store.consumer("g") as second:
            with taken_over(late, second):
                second.commit({"t": {0: 4, 1: 10}})
            until(lambda: late.process_queues() == {})
        fill(shop.store, {0: 1, 1: 1})
        until(lambda: shop.committed() == {0: 4, 1: 11})  # it is back, and reads
        assert listener.offsets(0) == [0]
        gate.opened.set()
        until(lambda: shop.committed() == {0: 11, 1: 11})
    assert listener.offsets(0) == [0, 4, 5, 6, 7, 8, 9, 10]
    assert listener.offsets(1) == list(range(11))
