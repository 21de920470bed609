"""Which neighbours are merged, over any arrivals: few segments, and few times the same bytes.

Finds a plan that writes what was merged before again and again, loses the order, or merges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from hypothesis import given, settings
from hypothesis import strategies as st

from kmq_storage.cutting import grown, taken_in

_MOST, _SMALLEST = 10_000, 10


@dataclass(frozen=True)
class _Segment:
    base: int
    size: int
    #: How often the bytes of it were written that were written most often.
    merges: int = 0


def _merged(segments: list[_Segment], times: int, final: float | None) -> list[_Segment]:
    """The segments after one pass, which is checked: neighbours only, in order, none too large."""
    found, left = [], list(segments)
    for run in grown(segments, lambda each: each.size, _MOST, times=times, final=final):
        at = left.index(run[0])
        assert left[at : at + len(run)] == run
        size = sum(each.size for each in run)
        assert len(run) >= 2
        assert size <= _MOST
        found += left[:at]
        found.append(_Segment(run[0].base, size, 1 + max(each.merges for each in run)))
        left = left[at + len(run) :]
    return found + left


def _after(arrivals: list[int], times: int, final: float | None = None) -> list[_Segment]:
    segments: list[_Segment] = []
    for base, size in enumerate(arrivals):
        segments = _merged([*segments, _Segment(base, size)], times, final)
    return segments


def _after_taking_in(arrivals: list[int]) -> Iterator[list[_Segment]]:
    """The segments after each arrival that takes in what it may, and what has grown is merged."""
    segments: list[_Segment] = []
    for base, size in enumerate(arrivals):
        segments = [*segments, _Segment(base, size)]
        count = taken_in([each.size for each in segments], _MOST, 9)
        if count > 1:
            last = segments[-count:]
            merges = 1 + max(each.merges for each in last)
            taken = _Segment(last[0].base, sum(each.size for each in last), merges)
            segments = [*segments[:-count], taken]
        segments = _merged(segments, 4, 1.5)
        yield segments


def _tiers(times: int) -> int:
    """How often something of the smallest size can grow so many times and is not too large."""
    tiers = 0
    while _SMALLEST * times ** (tiers + 1) <= _MOST:
        tiers += 1
    return tiers


def _falling(start: int, share: float) -> list[int]:
    sizes = [start]
    while sizes[-1] * share > _SMALLEST:
        sizes.append(int(sizes[-1] * share))
    return sizes


_FALLING = st.builds(_falling, st.integers(_SMALLEST, _MOST // 2), st.floats(0.3, 0.97))
#: Of any sizes: all alike, of each magnitude, or smaller and smaller, once or again and again.
_ARRIVALS = (
    st.lists(st.integers(_SMALLEST, _MOST), max_size=300)
    | st.lists(st.integers(_SMALLEST, 3 * _SMALLEST), max_size=300)
    | st.lists(st.floats(1, 3.9).map(lambda power: round(10**power)), max_size=300)
    | st.builds(lambda sizes, turns: sizes * turns, _FALLING, st.integers(1, 5))
)


def _check_all_are_there(segments: list[_Segment], arrivals: list[int]) -> None:
    assert sum(each.size for each in segments) == sum(arrivals)
    bases = [each.base for each in segments]
    assert bases == sorted(set(bases))


def _most_merges(segments: list[_Segment]) -> int:
    return max((each.merges for each in segments), default=0)


@given(arrivals=_ARRIVALS, times=st.integers(2, 12))
def test_no_byte_is_merged_more_often_than_there_are_tiers(arrivals: list[int], times: int):
    segments = _after(arrivals, times)
    assert _most_merges(segments) <= _tiers(times)
    _check_all_are_there(segments, arrivals)


@given(
    size=st.integers(_SMALLEST, _MOST),
    many=st.integers(0, 600),
    times=st.integers(2, 12),
    final=st.floats(1.1, 3),
)
def test_of_arrivals_of_one_size_no_byte_is_merged_but_once_more(
    size: int, many: int, times: int, final: float
):
    assert _most_merges(_after([size] * many, times, final)) <= _tiers(times) + 1


@given(arrivals=_ARRIVALS, times=st.integers(2, 12), final=st.floats(1.1, 3))
def test_whatever_arrives_each_merge_but_the_first_makes_something_larger(
    arrivals: list[int], times: int, final: float
):
    segments = _after(arrivals, times, final)
    grows = min(final, 1 + 1 / times)
    assert _most_merges(segments) <= 1 + log(_MOST / _SMALLEST, grows)
    _check_all_are_there(segments, arrivals)


@given(arrivals=_ARRIVALS, times=st.integers(2, 12), final=st.floats(1.1, 3))
def test_whatever_arrives_few_segments_wait_behind_one_of_their_size(
    arrivals: list[int], times: int, final: float
):
    segments = _after(arrivals, times, final)
    while (more := _merged(segments, times, final)) != segments:
        segments = more
    sizes = [each.size for each in segments]
    for first, size in enumerate(sizes):
        behind = sum(sizes[first + 1 :])
        if size + behind <= _MOST:
            assert behind <= times * size
            alike = [each for each in sizes[first:] if times * each > max(sizes[first:])]
            assert len(alike) <= times


@given(size=st.integers(_SMALLEST, _MOST // 10), many=st.integers(10, 300))
def test_the_last_ten_of_one_size_are_in_two_segments_where_each_takes_in_earlier_ones(
    size: int, many: int
):
    for count, segments in enumerate(_after_taking_in([size] * many), 1):
        assert sum(each.base + each.size // size > count - 10 for each in segments) <= 2
    assert _most_merges(segments) <= 8 + _tiers(4) + 1


@given(arrivals=_ARRIVALS)
def test_whatever_takes_in_earlier_ones_becomes_larger_each_time_by_a_ninth(arrivals: list[int]):
    segments = [*_after_taking_in(arrivals), []][max(len(arrivals) - 1, 0)]
    assert _most_merges(segments) <= 1 + log(_MOST / _SMALLEST, 1 + 1 / 9)
    _check_all_are_there(segments, arrivals)


@settings(max_examples=30)
@given(
    arrivals=st.lists(st.integers(_SMALLEST, 3 * _SMALLEST), min_size=1, max_size=20),
    times=st.integers(2, 12),
)
def test_segments_are_few_in_each_tier(arrivals: list[int], times: int):
    many = arrivals * (800 // len(arrivals))
    final = 2 * times * (sum(many) / _MOST)  # grew to half of what may still grow, or more
    assert len(_after(many, times)) <= (_tiers(times) + 1) * times + final


@given(size=st.integers(_MOST // 20, _MOST // 2), many=st.integers(1, 300))
def test_large_arrivals_become_as_large_as_is_worth_it(size: int, many: int):
    each_at_least = (_MOST - size) / 1.5
    waiting = 8
    assert len(_after([size] * many, 4, 1.5)) <= size * many / each_at_least + waiting
