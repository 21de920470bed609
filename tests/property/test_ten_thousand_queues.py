"""Ten thousand queues against a model, by somebody who dies at every change.

`queue_walk.py` walks as many as one likes. Finds: messages lost, doubled or moved, ends that count
for some queues only, indexes given twice.
"""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.property.queue_walk import FULL, MAINTENANCE, Walk


def test_ten_thousand_queues_are_as_in_the_model_whoever_dies_where():
    walk = Walk(0)
    for step in FULL:
        walk.step(step)
        walk.step("put")
    assert {*+walk.died} == {*MAINTENANCE, "delete", "trim"}, "all of them are interrupted"


#: A walk takes as long as some thirty other examples, and shrinking one takes minutes.
@settings(max_examples=settings().max_examples // 33, phases=(Phase.reuse, Phase.generate))
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from([*MAINTENANCE, "put", "delete", "trim"]), min_size=6, max_size=9),
)
def test_they_are_in_any_order_of_steps(seed: int, steps: list[str]):
    walk = Walk(seed)
    for step in steps:
        walk.step(step)
        walk.step("put")
