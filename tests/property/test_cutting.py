"""Where sequences are cut: nothing is lost or moved, and no run is larger than it may be.

Finds a cut that drops what is left at the end, or leaves one thread a run more than the others.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kmq_storage.cutting import evenly

_MOST = 100


@given(st.lists(st.integers(0, 2 * _MOST), max_size=60), st.integers(1, 4))
def test_what_is_cut_evenly_stays_in_order_and_no_run_of_several_is_too_large(
    sizes: list[int], of: int
):
    runs = list(evenly(sizes, int, _MOST, of))
    assert [size for run in runs for size in run] == sizes
    assert all(len(run) == 1 or sum(run) <= _MOST for run in runs)


@given(st.integers(1, 2_000), st.integers(1, 4))
def test_equal_items_make_runs_of_one_size_of_which_no_thread_has_more(count: int, of: int):
    runs = [len(run) for run in evenly([1] * count, int, _MOST, of)]
    assert len(runs) == 1 if count <= _MOST else len(runs) % of == 0
    assert max(runs) - min(runs) <= 1
