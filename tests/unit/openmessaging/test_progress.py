"""Which messages of a place are acknowledged, against a set.

Finds: a position behind a message that is still open.
"""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from kmq_spark.openmessaging.progress import Progress


@given(st.data(), st.sets(st.integers(0, 30), min_size=1).map(sorted))
def test_a_place_goes_on_at_the_first_message_that_is_not_acknowledged(
    data: st.DataObject, offsets: list[int]
):
    progress, is_open, finished = Progress(offsets[0]), set[int](), set[int]()
    split = data.draw(st.integers(1, len(offsets)))
    for batch in filter(None, (offsets[:split], offsets[split:])):
        progress.read(batch, batch[-1] + 1)
        is_open.update(set(batch) - finished)
        for done in data.draw(st.lists(st.sampled_from(offsets))):
            others = is_open - {done}
            assert progress.first_open(without=done) == min(others, default=progress.end)
            progress.finish(done)
            finished.add(done)
            is_open.discard(done)
            assert [*chain(*progress.open)] == sorted(is_open)
            assert progress.first_open() == min(is_open, default=progress.end)
