"""Looking at a store while another thread takes in new commits.

Finds: loops over what a state has that fail because it changes under them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import kmq_spark as kmq
from kmq_storage.tables.reading import table_of
from tests.support.clock import Clock
from tests.support.in_between import in_between

#: What looks, and the function in which another thread comes in between.
LOOKS: dict[str, Callable[[kmq.Store], object]] = {
    "warn_of_doubtful_ends": lambda store: store.groups(),
    "_committed": lambda store: store.describe_group("g"),
    "_with_records": lambda store: store.verify(),
    "names_of": lambda store: table_of(store.log, store.log.refresh(), "commits", limit=None),
    "_of_topics": lambda store: store.maintain(),
}


@pytest.mark.parametrize("function", LOOKS)
def test_topics_are_made_and_read_by_groups_while_another_thread_looks(
    store: kmq.Store, clock: Clock, function: str
):
    for name in ("t0", "t1"):
        store.create_topic(name)
        with store.producer() as producer:
            producer.send(name, b"1")
    clock.pass_seconds(100_000.0)  # `maintain` has something to seal
    store.set_group_offsets("g", {"t0": {0: 0}, "t1": {0: 0}})
    numbers = itertools.count(2)

    def change() -> None:
        name = f"t{next(numbers)}"
        store.create_topic(name)
        store.set_group_offsets("g", {name: {0: 0}})
        store.log.refresh()

    with in_between(change, function):
        LOOKS[function](store)


def test_groups_are_listed_while_others_delete_some(store: kmq.Store):
    store.create_topic("t")
    for name in ("a", "b", "c"):
        store.set_group_offsets(name, {"t": {0: 0}})
    left = ["c", "b"]

    def delete_one() -> None:
        if left:
            store.delete_group(left.pop())
            store.log.refresh()

    with in_between(delete_one, "describe_in"):
        found = store.groups()
    assert [(each.name, each.committed) for each in found] == [
        (name, {"t": {0: 0}}) for name in ("a", "b", "c")
    ]


def test_a_segment_that_waits_to_be_collected_is_verified_while_another_thread_deletes_its_topic(
    store: kmq.Store,
):
    store.create_topic("t", cleanup="compact")
    for value in (b"1", b"2"):
        with store.producer() as producer:
            producer.send("t", value, b"k")
        store.seal()
    assert store.compact("t").dropped == 1
    left = ["t"]

    def delete_it() -> None:
        if left:
            store.delete_topic(left.pop())

    with in_between(delete_it, "_wrong"):
        assert store.verify(deep=True).ok
