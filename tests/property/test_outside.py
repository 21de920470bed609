"""What of a range no span covers, over any spans.

Finds offsets that are left out, found twice, or found although a span covers them.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kmq_storage.cutting import outside

_OFFSETS = st.integers(0, 20)
_SPANS = st.tuples(_OFFSETS, _OFFSETS).map(sorted).map(tuple)


@given(st.lists(_SPANS), _OFFSETS, _OFFSETS)
def test_what_no_span_covers_is_found_once_and_in_order(
    spans: list[tuple[int, int]], start: int, end: int
) -> None:
    found = [offset for part in outside(spans, start, end) for offset in range(*part)]
    assert found == [
        offset
        for offset in range(start, end)
        if not any(low <= offset < high for low, high in spans)
    ]
