"""Filters of bindings: what can be bound can be evaluated, and says what Python would.

Finds: a binding that makes every later `receive` fail, whole numbers that are compared as floats.
"""

from __future__ import annotations

import operator

import pytest

import kmq_spark as kmq

_MOST = 2**63 - 1
_SIGNS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge}


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
