"""Filters of bindings: what can be bound can be evaluated, and says what Python would.

Finds: a binding that makes every later `receive` fail, whole numbers that are compared as floats.
"""

from __future__ import annotations

import operator
import random
from fractions import Fraction

import pyarrow as pa
import pytest

import kmq_spark as kmq
from kmq_storage.format.records import PROPERTIES_TYPE, PROPERTY_TYPE
from kmq_storage.log.state.queues.topics import Binding
from kmq_storage.queues.filters import accepted

_MOST = 2**63 - 1
_SIGNS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("bound", [_MOST, _MOST + 1, -_MOST - 1, -_MOST - 2, 10**400, -(10**400)])
def test_numbers_of_any_size_are_compared_exactly(store: kmq.Store, bound: int):
    store.create_topic("t")
    numbers = (-_MOST - 1, 0, _MOST, 1.5)
    with store.producer() as producer:
        for n in numbers:
            producer.send("t", str(n), properties={"n": n})
    for sign, holds in _SIGNS.items():
        name = holds.__name__
        store.create_queue(name)
        store.bind_queue(name, "t", filter=f"n {sign} {bound}")
        entered = [each.value.decode() for each in store.queue(name).receive(9)]
        assert entered == [str(n) for n in numbers if holds(n, bound)]


@pytest.mark.parametrize(
    "bound", ["9007199254740993.0", "9007199254740992.5", "-9007199254740992.5", "9.1e18", "-0.5"]
)
def test_whole_numbers_are_compared_exactly_with_a_number_that_has_a_point(bound: str):
    numbers = (-_MOST - 1, -(2**53) - 1, -(2**53), -1, 0, 2**53, 2**53 + 1, 91 * 10**17, _MOST)
    entries = [("n", dict.fromkeys(PROPERTY_TYPE.names) | {"int": n}) for n in numbers]
    column = pa.array([[entry] for entry in entries], PROPERTIES_TYPE)
    for sign, holds in _SIGNS.items():
        expected = [holds(n, Fraction(bound)) for n in numbers]
        assert accepted(f"n {sign} {bound}", column, len(numbers)).to_pylist() == expected
    equal = [n == Fraction(bound) for n in numbers]
    assert accepted(f"n in (7, {bound})", column, len(numbers)).to_pylist() == equal


@pytest.mark.parametrize(
    ("filter_", "tags"),
    [("n = '\ud800'", None), ('"\ud800" = 1', None), (None, "\ud800"), ([], None), ({}, "a")],
)
def test_what_could_not_be_evaluated_is_refused_when_it_is_bound(
    store: kmq.Store, filter_: str | None, tags: str | None
):
    store.create_topic("t")
    store.create_queue("q")
    with pytest.raises(kmq.InvalidRequestError, match=r"filter|tags"):
        store.bind_queue("q", "t", filter=filter_, tags=tags)
    assert store.queues()[0].topics == []


@pytest.mark.parametrize(
    ("also", "plain"),
    [
        ("n != 1", "n <> 1"),
        ("n not in (1, 2)", "not n in (1, 2)"),
        ("n is not null", "not n is null"),
        ('"n" = 1', "n = 1"),
        ("paid = true", "not paid = false"),
    ],
)
def test_what_other_sql_writes_is_understood_too(store: kmq.Store, also: str, plain: str):
    store.create_topic("t")
    with store.producer() as producer:
        for properties in ({}, {"n": 1}, {"n": 2}, {"n": 3}, {"paid": True}, {"paid": False}):
            producer.send("t", b"-", properties=properties)
    entered = []
    for name, filter_ in (("also", also), ("plain", plain)):
        store.create_queue(name)
        store.bind_queue(name, "t", filter=filter_)
        entered.append([each.offset for each in store.queue(name).receive(9)])
    assert entered[0] == entered[1]
    assert 0 < len(entered[0]) < 6


def test_filters_that_are_set_again_and_again_leave_nothing_behind(store: kmq.Store):
    store.create_topic("t", partitions=2)
    store.create_queue("q", topics=["t"])
    queue = store.queue("q")
    with store.producer() as producer:
        for n in range(20):
            store.bind_queue("q", "t", filter=f"n = {n}")
            sent = [producer.send("t", b"-", partition=p, properties={"n": n}) for p in (0, 1)]
            assert len({each.result().partition for each in sent}) == 2
            queue.ack(queue.receive(9))
            store.bind_queue("q", "t", filter="n < 0")  # nothing comes before the next one
    (binding,) = store.log.refresh().queue("q").bindings.values()
    assert len(binding.periods) <= 2
    assert queue.stats().acked == 40


def test_a_record_is_looked_at_by_the_filter_that_held_when_it_came():
    """Whatever nobody needs any more and is forgotten, and however partitions are added."""
    chance = random.Random(7)
    for _ in range(300):
        whole = short = Binding(())
        ends, looked = [0], dict.fromkeys(range(3), 0)
        for _ in range(6):
            ends = [end + chance.choice((0, 0, 3)) for end in ends]
            ends += [0] * (len(ends) < 3 and chance.random() < 0.3)
            for partition, end in enumerate(ends):
                looked[partition] = chance.randint(looked[partition], end)
            expression = chance.choice((None, "a", "b"))
            whole = Binding((*whole.periods, (tuple(ends), expression)))
            short = short.changed(tuple(ends), expression, looked.__getitem__)
            looked = {p: max(first, whole.start(p)) for p, first in looked.items()}
            for partition, first in looked.items():
                for offset in range(first, 20):
                    told, kept = (each.filter_at(partition, offset)[0] for each in (whole, short))
                    assert told == kept
                assert whole.filters_from(partition, first) == short.filters_from(partition, first)
                assert short.start(partition) == whole.start(partition)
